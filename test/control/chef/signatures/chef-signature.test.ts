import { generateKeyPairSync } from 'node:crypto';
import t from 'tap';
import {
  canonicalText,
  hasBody,
  isSignedWith,
  readClaim,
  type SignatureClaim,
} from '../../../../lib/control/chef/signatures/chef-signature.ts';
import { type SignedHeaders, signed } from './sign.ts';

/**
 * Published by the authors of the protocol: chef/mixlib-authentication,
 * mixlib_authentication_spec.rb (Apache 2.0).
 */
const PUBLISHED = {
  publicKey: `-----BEGIN PUBLIC KEY-----
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA0ueqo76MXuP6XqZBILFz
iH/9AI7C6PaN5W0dSvkr9yInyGHSz/IR1+4tqvP2qlfKVKI4CP6BFH251Ft9qMUB
uAsnlAVQ1z0exDtIFFOyQCdR7iXmjBIWMSS4buBwRQXwDK7id1OxtU23qVJv+xwE
V0IzaaSJmaGLIbvRBD+qatfUuQJBMU/04DdJIwvLtZBYdC2219m5dUBQaa4bimL+
YN9EcsDzD9h9UxQo5ReK7b3cNMzJBKJWLzFBcJuePMzAnLFktr/RufX4wpXe6XJx
oVPaHo72GorLkwnQ0HYMTY8rehT4mDi1FI969LHCFFaFHSAaRnwdXaQkJmSfcxzC
YQIDAQAB
-----END PUBLIC KEY-----
`,
  body: 'Spec Body',
  method: 'POST',
  target: '/organizations/clownco',
  headers: { 'X-Ops-UserId': 'spec-user', 'X-Ops-Timestamp': '2009-01-01T12:00:00Z' },
  versions: {
    '1.0': {
      'X-Ops-Sign': 'version=1.0',
      'X-Ops-Content-Hash': 'DFteJZPVv6WKdQmMqZUQUumUyRs=',
      lines: [
        'jVHrNniWzpbez/eGWjFnO6lINRIuKOg40ZTIQudcFe47Z9e/HvrszfVXlKG4',
        'NMzYZgyooSvU85qkIUmKuCqgG2AIlvYa2Q/2ctrMhoaHhLOCWWoqYNMaEqPc',
        '3tKHE+CfvP+WuPdWk4jv4wpIkAz6ZLxToxcGhXmZbXpk56YTmqgBW2cbbw4O',
        'IWPZDHSiPcw//AYNgW1CCDptt+UFuaFYbtqZegcBd2n/jzcWODA7zL4KWEUy',
        '9q4rlh/+1tBReg60QdsmDRsw/cdO1GZrKtuCwbuD4+nbRdVBKv72rqHX9cu0',
        'utju9jzczCyB+sSAQWrxSsXB/b8vV2qs0l4VD2ML+w==',
      ],
    },
    '1.1': {
      'X-Ops-Sign': 'algorithm=sha1;version=1.1;',
      'X-Ops-Content-Hash': 'DFteJZPVv6WKdQmMqZUQUumUyRs=',
      lines: [
        'UfZD9dRz6rFu6LbP5Mo1oNHcWYxpNIcUfFCffJS1FQa0GtfU/vkt3/O5HuCM',
        '1wIFl/U0f5faH9EWpXWY5NwKR031Myxcabw4t4ZLO69CIh/3qx1XnjcZvt2w',
        'c2R9bx/43IWA/r8w8Q6decuu0f6ZlNheJeJhaYPI8piX/aH+uHBH8zTACZu8',
        'vMnl5MF3/OIlsZc8cemq6eKYstp8a8KYq9OmkB5IXIX6qVMJHA6fRvQEB/7j',
        '281Q7oI/O+lE8AmVyBbwruPb7Mp6s4839eYiOdjbDwFjYtbS3XgAjrHlaD7W',
        'FDlbAG7H8Dmvo+wBxmtNkszhzbBnEYtuwQqT8nM/8A==',
      ],
    },
    '1.3': {
      'X-Ops-Sign': 'algorithm=sha256;version=1.3;',
      'X-Ops-Content-Hash': 'hDlKNZhIhgso3Fs0S0pZwJ0xyBWtR1RBaeHs1DrzOho=',
      'X-Ops-Server-API-Version': '1',
      lines: [
        'FZOmXAyOBAZQV/uw188iBljBJXOm+m8xQ/8KTGLkgGwZNcRFxk1m953XjE3W',
        'VGy1dFT76KeaNWmPCNtDmprfH2na5UZFtfLIKrPv7xm80V+lzEzTd9WBwsfP',
        '42dZ9N+V9I5SVfcL/lWrrlpdybfceJC5jOcP5tzfJXWUITwb6Z3Erg3DU3Uh',
        'H9h9E0qWlYGqmiNCVrBnpe6Si1gU/Jl+rXlRSNbLJ4GlArAPuL976iTYJTzE',
        'MmbLUIm3JRYi00Yb01IUCCKdI90vUq1HHNtlTEu93YZfQaJwRxXlGkCNwIJe',
        'fy49QzaCIEu1XiOx5Jn+4GmkrZch/RrK9VzQWXgs+w==',
      ],
    },
  },
} as const;

const read = (headers: SignedHeaders) => {
  const lower = new Map(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));
  return readClaim((name) => lower.get(name.toLowerCase()));
};

const claimOf = (headers: SignedHeaders): SignatureClaim => {
  const claim = read(headers);
  if ('status' in claim) throw new Error(claim.message);
  return claim;
};

t.test('the signatures that the authors of the protocol published are accepted', async (t) => {
  const { body, method, target, headers, versions, publicKey } = PUBLISHED;
  for (const [version, { lines, ...own }] of Object.entries(versions)) {
    const parts = lines.map((line, index) => [`X-Ops-Authorization-${index + 1}`, line]);
    const claim = claimOf({ ...headers, ...own, ...Object.fromEntries(parts) });
    t.equal(claim.version, version);
    t.ok(hasBody(claim, Buffer.from(body)), `${version}: the body is the signed one`);
    t.notOk(hasBody(claim, Buffer.from(`${body} `)), `${version}: another body is not`);
    const text = canonicalText(claim, { method, target });
    t.ok(isSignedWith(publicKey, claim, text), `${version}: the signature fits`);
    t.notOk(isSignedWith(publicKey, claim, `${text}x`), `${version}: it fits no other text`);
  }
});

const pair = () => {
  const { publicKey, privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  return { publicKey: publicKey.export({ type: 'spki', format: 'pem' }) as string, privateKey };
};
const mine = pair();
const other = pair();

t.test('each version signs method, path, body, time and user', async (t) => {
  for (const version of ['1.0', '1.1', '1.2', '1.3'] as const) {
    const request = { method: 'POST', target: '/organizations/acme/pushy/jobs', body: '{}' };
    const claim = claimOf(signed(request, { key: mine.privateKey, userId: 'alice', version }));
    const fits = (changes: object, changed: Partial<SignatureClaim> = {}) =>
      isSignedWith(mine.publicKey, claim, canonicalText({ ...claim, ...changed }, { ...request, ...changes }));
    t.ok(fits({}), version);
    t.ok(fits({ target: '//organizations/acme//pushy/jobs/?x=1' }), `${version}: slashes and the query do not count`);
    t.notOk(fits({ method: 'PUT' }), `${version}: method`);
    t.notOk(fits({ target: '/organizations/other/pushy/jobs' }), `${version}: path`);
    t.notOk(fits({}, { userId: 'bob' }), `${version}: user`);
    t.notOk(fits({}, { signedAt: new Date(claim.signedAt.getTime() + 1000) }), `${version}: time`);
    t.notOk(fits({}, { contentHash: `A${claim.contentHash.slice(1)}` }), `${version}: body`);
    t.equal(fits({}, { apiVersion: 2 }), version !== '1.3', `${version}: version of the API`);
    t.notOk(isSignedWith(other.publicKey, claim, canonicalText(claim, request)), `${version}: key`);
    t.notOk(isSignedWith('no key', claim, canonicalText(claim, request)), `${version}: no key`);
  }
});

t.test('headers that cannot be read are refused with the reason', async (t) => {
  const request = { method: 'GET', target: '/', body: '' };
  const good = signed(request, { key: mine.privateKey, userId: 'alice', version: '1.3' });
  t.notOk('status' in read(good));
  const rows: Record<string, [changes: Record<string, string | undefined>, status: number, message: RegExp]> = {
    'no headers': [Object.fromEntries(Object.keys(good).map((name) => [name, undefined])), 400, /missing required/],
    'no user': [{ 'X-Ops-UserId': undefined }, 400, /missing .*'X-Ops-UserId'/],
    'no time': [{ 'X-Ops-Timestamp': undefined }, 400, /missing .*'X-Ops-Timestamp'/],
    'no hash': [{ 'X-Ops-Content-Hash': undefined }, 400, /missing .*'X-Ops-Content-Hash'/],
    'no signature': [{ 'X-Ops-Authorization-1': undefined }, 400, /missing .*'X-Ops-Authorization-1'/],
    'no version': [{ 'X-Ops-Sign': 'algorithm=sha256' }, 400, /Unsupported authentication protocol version/],
    'an unknown version': [{ 'X-Ops-Sign': 'version=1.4' }, 400, /Unsupported/],
    'the name of a method of objects': [{ 'X-Ops-Sign': 'version=constructor' }, 400, /Unsupported/],
    'another algorithm': [{ 'X-Ops-Sign': 'algorithm=sha1;version=1.3' }, 400, /Unsupported/],
    'no such time': [{ 'X-Ops-Timestamp': '2030-02-31T25:00:00Z' }, 401, /bad header\(s\) 'X-Ops-Timestamp'/],
    'a time in words': [{ 'X-Ops-Timestamp': 'yesterday' }, 401, /'X-Ops-Timestamp'/],
    'a user with a line break': [{ 'X-Ops-UserId': 'a\nb' }, 401, /'X-Ops-UserId'/],
    'a long user': [{ 'X-Ops-UserId': 'a'.repeat(256) }, 401, /'X-Ops-UserId'/],
    'a hash in hexadecimal digits and more': [{ 'X-Ops-Content-Hash': '§' }, 401, /'X-Ops-Content-Hash'/],
    'a signature that is not base64': [{ 'X-Ops-Authorization-2': 'ä' }, 401, /'X-Ops-Authorization-N'/],
    'a long signature': [{ 'X-Ops-Authorization-2': 'A'.repeat(1300) }, 401, /'X-Ops-Authorization-N'/],
    'a version of the API in words': [{ 'X-Ops-Server-API-Version': 'one' }, 401, /'X-Ops-Server-API-Version'/],
  };
  for (const [name, [changes, status, message]] of Object.entries(rows))
    t.match(read({ ...good, ...changes }), { status, message }, name);
  const many = Object.fromEntries(
    Array.from({ length: 40 }, (_, index) => [`X-Ops-Authorization-${index + 1}`, 'AAAA']),
  );
  t.match(read({ ...good, ...many }), { status: 401 }, 'a signature in many headers');
});

t.test('a time may be in the form of HTTP, or of another zone', async (t) => {
  const request = { method: 'GET', target: '/', body: '' };
  const good = signed(request, { key: mine.privateKey, userId: 'alice', version: '1.1', now: Date.UTC(2030, 0, 1) });
  for (const time of ['2030-01-01T00:00:00Z', 'Tue, 01 Jan 2030 00:00:00 GMT', '2030-01-01T01:00:00.000+01:00']) {
    const claim = claimOf({ ...good, 'X-Ops-Timestamp': time });
    t.ok(isSignedWith(mine.publicKey, claim, canonicalText(claim, request)), time);
  }
});
