/**
 * Signs requests in the Chef API protocol as a client would: written from its description, not with
 * the code that is tested.
 */
import { constants, createHash, type KeyLike, privateEncrypt, sign } from 'node:crypto';

export type SignedHeaders = Record<string, string | undefined>;

export interface Signer {
  key: KeyLike;
  userId: string;
  version?: '1.0' | '1.1' | '1.2' | '1.3';
  /** The present time in ms. */
  now?: number;
}

export function signed(
  { method, target, body }: { method: string; target: string; body: string },
  { key, userId, version = '1.3', now = Date.now() }: Signer,
): SignedHeaders {
  const time = `${new Date(now).toISOString().slice(0, 19)}Z`;
  const algorithm = version === '1.3' ? 'sha256' : 'sha1';
  const hash = (text: string) => createHash(algorithm).update(text).digest('base64');
  const path = target.split('?')[0] ?? '';
  const contentHash = hash(body);
  const text = {
    '1.0': `Method:${method}\nHashed Path:${hash(path)}\nX-Ops-Content-Hash:${contentHash}\nX-Ops-Timestamp:${time}\nX-Ops-UserId:${userId}`,
    '1.1': `Method:${method}\nHashed Path:${hash(path)}\nX-Ops-Content-Hash:${contentHash}\nX-Ops-Timestamp:${time}\nX-Ops-UserId:${hash(userId)}`,
    '1.2': `Method:${method}\nHashed Path:${hash(path)}\nX-Ops-Content-Hash:${contentHash}\nX-Ops-Timestamp:${time}\nX-Ops-UserId:${hash(userId)}`,
    '1.3': `Method:${method}\nPath:${path}\nX-Ops-Content-Hash:${contentHash}\nX-Ops-Sign:version=1.3\nX-Ops-Timestamp:${time}\nX-Ops-UserId:${userId}\nX-Ops-Server-API-Version:1`,
  }[version];
  const signature =
    version === '1.0' || version === '1.1'
      ? privateEncrypt({ key: key as Buffer, padding: constants.RSA_PKCS1_PADDING }, Buffer.from(text))
      : sign(algorithm, Buffer.from(text), key);
  const lines = signature.toString('base64').match(/.{1,60}/g) ?? [];
  return {
    'X-Ops-Sign': `algorithm=${algorithm};version=${version};`,
    'X-Ops-UserId': userId,
    'X-Ops-Timestamp': time,
    'X-Ops-Content-Hash': contentHash,
    'X-Ops-Server-API-Version': '1',
    ...Object.fromEntries(lines.map((line, index) => [`X-Ops-Authorization-${index + 1}`, line])),
  };
}
