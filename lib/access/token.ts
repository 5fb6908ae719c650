/**
 * Tokens and what they are good for. Pure: their text, the hash that is kept of it, and which role may do what.
 *
 * A token is `cnapi_<uuid without dashes>_<43 characters of base64url>`: the first part finds the row, the second is 32
 * random bytes, of which only a SHA-256 is stored. With so many bits there is nothing to guess, so no slow hash is needed.
 */
import { createHash, timingSafeEqual } from 'node:crypto';

export const TOKEN_ROLES = ['reader', 'operator', 'admin', 'agent'] as const;
export type Role = (typeof TOKEN_ROLES)[number];

/** What a route asks of its caller; `anyone` needs no token. */
export type Need = Role | 'anyone';

/** Who asks, once that is known. */
export interface Actor {
  /** The token's name; `network 10.0.0.0/24` for a caller trusted by where it is; `open` where no token is asked for. */
  name: string;
  roles: readonly Role[];
  tokenUuid?: string;
  /** The one server that an agent's token is good for; any, when absent. */
  serverUuid?: string;
}

/** A token as it is listed; its secret is not there. */
export interface Token {
  uuid: string;
  name: string;
  role: Role;
  server_uuid: string | null;
  created_at: string;
  created_by: string;
  expires_at: string | null;
  last_used_at: string | null;
  revoked_at: string | null;
}

export interface TokenText {
  uuid: string;
  secret: string;
}

/** Where `access` is open, on loopback: whoever is on this machine. */
export const OPEN: Actor = { name: 'open', roles: ['admin', 'agent'] };

const TEXT = /^cnapi_([0-9a-f]{8})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{12})_([A-Za-z0-9_-]{43})$/;
/** RFC 6750, section 2.1; the scheme in any case (RFC 9110, section 11.1). */
const BEARER = /^bearer +(\S{1,200})$/i;

const NAME = /^[\p{L}\p{N}][\p{L}\p{N} ._@:/+-]{0,99}$/u;
/** What the audit calls those who have no token. */
const TAKEN = /^(open|nobody|configuration|network .*)$/i;

/** Why a token cannot be called so, if so. */
export function reasonNotAName(name: string): string | undefined {
  if (!NAME.test(name))
    return 'is not 1 to 100 letters, digits, spaces or . _ @ : / + -, beginning with a letter or digit';
  return TAKEN.test(name) ? 'is what the audit calls those who have no token' : undefined;
}

export function formatToken({ uuid, secret }: TokenText): string {
  return `cnapi_${uuid.replaceAll('-', '')}_${secret}`;
}

/** Undefined for what is no token of ours. */
export function parseToken(text: string): TokenText | undefined {
  const match = TEXT.exec(text);
  return match === null ? undefined : { uuid: match.slice(1, 6).join('-'), secret: match[6] ?? '' };
}

/** The token of an `Authorization` header; undefined when it is of another kind. */
export function bearerOf(authorization: string): string | undefined {
  return BEARER.exec(authorization.trim())?.[1];
}

export function hashSecret(secret: string): Buffer {
  return createHash('sha256').update(secret).digest();
}

/** In constant time. */
export function isSecret(secret: string, hash: Buffer): boolean {
  const given = hashSecret(secret);
  return given.length === hash.length && timingSafeEqual(given, hash);
}

const RANK: Readonly<Record<Exclude<Role, 'agent'>, number>> = { reader: 1, operator: 2, admin: 3 };

/** Each of reader, operator and admin may do what those before it may; an agent's role is beside them. */
export function permits(roles: readonly Role[], need: Need): boolean {
  if (need === 'anyone') return true;
  return roles.some((role) => (role === 'agent' || need === 'agent' ? role === need : RANK[role] >= RANK[need]));
}
