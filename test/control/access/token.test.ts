import t from 'tap';
import {
  callerKey,
  formatToken,
  hashSecret,
  matchesHash,
  OPEN_ACTOR,
  parseBearer,
  parseToken,
  permits,
  senderGroupOf,
} from '../../../lib/control/access/token.ts';
import { type RequiredRole, type Role, reasonNotAName } from '../../../lib/protocol/api/contract/roles.ts';

const uuid = '0d5b3c1e-8f4a-4c2b-9d6e-7f8091a2b3c4';
const secret = 'A'.repeat(43);

t.test('formatToken and parseToken are inverse', async (t) => {
  const text = formatToken({ uuid, secret });
  t.equal(text, `cnapi_0d5b3c1e8f4a4c2b9d6e7f8091a2b3c4_${secret}`);
  t.same(parseToken(text), { uuid, secret });
});

t.test('input is counted with that of all who could send it', async (t) => {
  const agent = { name: 'a', roles: ['agent'] } as const;
  for (const [who, actor, group] of [
    ['an agent with a token of its own', { ...agent, tokenUuid: uuid, serverUuid: uuid }, undefined],
    ['an agent with the token of a fleet', { ...agent, tokenUuid: uuid }, uuid],
    ['an agent in a trusted network', agent, 'address 192.0.2.1'],
    ['anybody while access is open', OPEN_ACTOR, undefined],
  ] as const)
    t.equal(senderGroupOf(actor, '::ffff:192.0.2.1'), group, who);
  t.equal(senderGroupOf(agent, '2001:db8::1'), senderGroupOf(agent, '2001:db8::2'), 'one machine has a whole /64');
});

t.test('limits count a token, else who signed, else the address', async (t) => {
  const signer = { name: 'a', roles: [], principal: { kind: 'client', uuid, name: 'web', publicKey: 'pem' } } as const;
  for (const [who, actor, caller] of [
    ['a token', { name: 'a', roles: ['reader'], tokenUuid: uuid }, uuid],
    ['a client of an organization', signer, uuid],
    ['a caller in a trusted network', { name: 'a', roles: ['reader'] }, '192.0.2.1'],
    ['somebody who is not authenticated yet', undefined, '192.0.2.1'],
  ] as const)
    t.equal(callerKey(actor, '::ffff:192.0.2.1'), caller, who);
});

t.test('malformed tokens are refused', async (t) => {
  const good = formatToken({ uuid, secret });
  for (const text of [
    '',
    'cnapi_',
    good.slice(1),
    good.slice(0, -1),
    `${good}A`,
    good.toUpperCase(),
    ` ${good}`,
    `${good}\n`,
  ])
    t.equal(parseToken(text), undefined, JSON.stringify(text));
});

t.test('token names may not hold terminal escapes or clash with names in the audit', async (t) => {
  for (const name of ['ci', 'Büro 7', 'deploy@web-1', 'a:b/c+d_e.f']) t.equal(reasonNotAName(name), undefined, name);
  for (const name of ['', ' a', 'a\n', 'a\u001b[2J', '-a', 'x'.repeat(101)])
    t.match(reasonNotAName(name), /is not 1 to 100/);
  for (const name of ['open', 'Nobody', 'configuration', 'network 10.0.0.0/24'])
    t.match(reasonNotAName(name), /reserved/, name);
});

t.test('the Authorization header follows RFC 6750, with a case-insensitive scheme', async (t) => {
  t.equal(parseBearer('Bearer abc'), 'abc');
  t.equal(parseBearer('bearer  abc '), 'abc');
  for (const header of ['', 'Bearer', 'Bearer ', 'Basic abc', 'Bearer a b', `Bearer ${'x'.repeat(201)}`])
    t.equal(parseBearer(header), undefined, header);
});

t.test('a secret is checked against its hash', async (t) => {
  const hash = hashSecret(secret);
  t.equal(matchesHash(secret, hash), true);
  t.equal(matchesHash(`${secret.slice(1)}B`, hash), false);
  t.equal(matchesHash(secret, hash.subarray(1)), false, 'a hash of another length does not match');
});

const allowed: Record<Role, RequiredRole[]> = {
  reader: ['anyone', 'reader'],
  operator: ['anyone', 'reader', 'operator'],
  admin: ['anyone', 'reader', 'operator', 'admin'],
  agent: ['anyone', 'agent'],
};
for (const [role, needs] of Object.entries(allowed) as [Role, RequiredRole[]][]) {
  t.test(`the role ${role} permits ${needs.join(', ')}, and nothing else`, async (t) => {
    const all: RequiredRole[] = ['anyone', 'reader', 'operator', 'admin', 'agent'];
    t.same(
      all.filter((requiredRole) => permits([role], requiredRole)),
      needs,
    );
  });
}

t.test('several roles add up, and no role permits only public routes', async (t) => {
  t.equal(permits(['agent', 'reader'], 'reader'), true);
  t.equal(permits(['agent', 'reader'], 'operator'), false);
  t.equal(permits([], 'reader'), false);
  t.equal(permits([], 'anyone'), true);
});
