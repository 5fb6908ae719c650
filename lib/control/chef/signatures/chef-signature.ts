/**
 * The signature of a request in the Chef API protocol, versions 1.0 to 1.3: reads it from the
 * headers, and checks it with a public key. Pure. The forms are those of mixlib-authentication and
 * chef_authn:
 *
 * | version | hash | user id in the text | signature |
 * |---|---|---|---|
 * | 1.0 | SHA-1 | as it is | the text itself under the private key (PKCS #1, type 1) |
 * | 1.1 | SHA-1 | its hash | as 1.0 |
 * | 1.2 | SHA-1 | its hash | RSASSA-PKCS1-v1_5 with SHA-1 |
 * | 1.3 | SHA-256 | as it is | RSASSA-PKCS1-v1_5 with SHA-256 |
 */
import { constants, createHash, type KeyObject, publicDecrypt, timingSafeEqual, verify } from 'node:crypto';
import { parsePublicKey } from '../../organizations/key-material.ts';

type SignatureVersion = '1.0' | '1.1' | '1.2' | '1.3';
type Algorithm = 'sha1' | 'sha256';

/** What the headers of a request say. */
export interface SignatureClaim {
  version: SignatureVersion;
  userId: string;
  signedAt: Date;
  contentHash: string;
  signature: Buffer;
  /** Signed in version 1.3 only. */
  apiVersion: number;
}

/** What is signed, beside the headers of the signature, and the body by its hash. */
interface SignedTarget {
  method: string;
  /** The request target as received. It may have a query, which is not signed. */
  target: string;
}

/** A refusal of headers: the status, and a text for the caller. */
export interface HeaderRefusal {
  status: 400 | 401;
  message: string;
}

type Header = (name: string) => string | undefined;

const ALGORITHMS: Readonly<Record<SignatureVersion, Algorithm>> = {
  '1.0': 'sha1',
  '1.1': 'sha1',
  '1.2': 'sha1',
  '1.3': 'sha256',
};
const REQUIRED = ['X-Ops-UserId', 'X-Ops-Timestamp', 'X-Ops-Sign', 'X-Ops-Content-Hash'] as const;
const FIRST_PART = 'X-Ops-Authorization-1';
/** The signature of a key of 8192 bits has 1,368 characters, 60 in each header. */
const MAX_PARTS = 30;
const MAX_PART_CHARS = 1400;
const MAX_SIGNATURE_CHARS = 1400;
const MAX_USER_ID_CHARS = 255;
const MAX_HEADER_CHARS = 200;
const BASE64 = /^[A-Za-z0-9+/]+={0,2}$/;
const TIMES = [
  /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d)$/,
  // RFC 1123.
  /^[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT$/,
];

/** Reads the headers without looking at the body: cheap, for requests of anybody. */
export function readClaim(header: Header): SignatureClaim | HeaderRefusal {
  const missing = [...REQUIRED, FIRST_PART].filter((name) => header(name) === undefined);
  if (missing.length > 0)
    return { status: 400, message: `missing required authentication header(s) '${missing.join("', '")}'` };
  const [userId = '', time = '', sign = '', contentHash = ''] = REQUIRED.map((name) => header(name)?.trim());
  const version = versionOf(sign);
  if (version === undefined) return { status: 400, message: 'Unsupported authentication protocol version' };
  const signedAt = timeOf(time);
  const signature = signatureOf(header);
  const apiVersion = header('X-Ops-Server-API-Version')?.trim() ?? '0';
  const isBad = {
    'X-Ops-UserId': !/^[\x21-\x7e]+$/.test(userId) || userId.length > MAX_USER_ID_CHARS,
    'X-Ops-Timestamp': signedAt === undefined,
    'X-Ops-Content-Hash': !BASE64.test(contentHash) || contentHash.length > MAX_HEADER_CHARS,
    'X-Ops-Authorization-N': signature === undefined,
    'X-Ops-Server-API-Version': !/^\d{1,9}$/.test(apiVersion),
  };
  const bad = Object.entries(isBad).flatMap(([name, is]) => (is ? [name] : []));
  if (signedAt === undefined || signature === undefined || bad.length > 0)
    return { status: 401, message: `bad header(s) '${bad.join("', '")}'` };
  return { version, userId, signedAt, contentHash, signature, apiVersion: Number(apiVersion) };
}

/** Whether the body is the one that was signed; in constant time. */
export function hasBody({ version, contentHash }: SignatureClaim, body: Uint8Array): boolean {
  const expected = Buffer.from(hashOf(body, ALGORITHMS[version]));
  const given = Buffer.from(contentHash);
  return expected.length === given.length && timingSafeEqual(expected, given);
}

/** The text that the signature is about. Equal requests of one second have equal texts. */
export function canonicalText(claim: SignatureClaim, { method, target }: SignedTarget): string {
  const { version, userId, signedAt, contentHash, apiVersion } = claim;
  const algorithm = ALGORITHMS[version];
  const path = canonicalPath(target);
  const time = signedAt.toISOString().replace(/\.\d+Z$/, 'Z');
  const isHashed = version === '1.1' || version === '1.2';
  const user = isHashed ? hashOf(userId, algorithm) : userId;
  const lines =
    version === '1.3'
      ? [
          `Method:${method.toUpperCase()}`,
          `Path:${path}`,
          `X-Ops-Content-Hash:${contentHash}`,
          `X-Ops-Sign:version=${version}`,
          `X-Ops-Timestamp:${time}`,
          `X-Ops-UserId:${user}`,
          `X-Ops-Server-API-Version:${apiVersion}`,
        ]
      : [
          `Method:${method.toUpperCase()}`,
          `Hashed Path:${hashOf(path, algorithm)}`,
          `X-Ops-Content-Hash:${contentHash}`,
          `X-Ops-Timestamp:${time}`,
          `X-Ops-UserId:${user}`,
        ];
  return lines.join('\n');
}

/** Whether the signature of the text was made with the private key of this public key, a PEM. */
export function isSignedWith(pem: string, { version, signature }: SignatureClaim, text: string): boolean {
  const key = parsePublicKey(pem);
  if (key === undefined) return false;
  if (version === '1.2' || version === '1.3') return verify(ALGORITHMS[version], Buffer.from(text), key, signature);
  const decrypted = decrypt(key, signature);
  const expected = Buffer.from(text);
  return decrypted?.length === expected.length && timingSafeEqual(decrypted, expected);
}

/** Undefined if it was not encrypted with the private key. */
function decrypt(key: KeyObject, signature: Buffer): Buffer | undefined {
  try {
    return publicDecrypt({ key, padding: constants.RSA_PKCS1_PADDING }, signature);
  } catch {
    return undefined;
  }
}

/** Without query, repeated slashes and a slash at the end. */
function canonicalPath(target: string): string {
  const path = (target.split('?', 1)[0] ?? '').replace(/\/+/g, '/');
  return path.length > 1 ? path.replace(/\/$/, '') : path;
}

function hashOf(content: string | Uint8Array, algorithm: Algorithm): string {
  return createHash(algorithm).update(content).digest('base64');
}

/** `algorithm=sha1;version=1.0;`, with or without the algorithm. */
function versionOf(sign: string): SignatureVersion | undefined {
  if (sign.length > MAX_HEADER_CHARS) return undefined;
  const parts = new Map(
    sign.split(';').map((part) => {
      const [name = '', value = ''] = part.split('=', 2);
      return [name.trim(), value.trim()];
    }),
  );
  const version = parts.get('version');
  if (version === undefined || !Object.hasOwn(ALGORITHMS, version)) return undefined;
  const expected = ALGORITHMS[version as SignatureVersion];
  return (parts.get('algorithm') ?? expected) === expected ? (version as SignatureVersion) : undefined;
}

function timeOf(text: string): Date | undefined {
  if (!TIMES.some((form) => form.test(text))) return undefined;
  const time = new Date(text);
  return Number.isNaN(time.getTime()) ? undefined : time;
}

function signatureOf(header: Header): Buffer | undefined {
  let text = '';
  for (let number = 1; ; number++) {
    const part = header(`X-Ops-Authorization-${number}`);
    if (part === undefined) break;
    if (number > MAX_PARTS || part.length > MAX_PART_CHARS) return undefined;
    text += part.trim();
  }
  return text.length <= MAX_SIGNATURE_CHARS && BASE64.test(text) ? Buffer.from(text, 'base64') : undefined;
}
