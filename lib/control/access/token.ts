/**
 * Tokens and what they permit. Pure: their text, the stored hash of it, and what each role may do.
 *
 * A token is `cnapi_<uuid without dashes>_<43 characters of base64url>`: the first part finds the
 * row, the second is 32 random bytes, of which only a SHA-256 is stored. So many random bits cannot
 * be guessed, so no slow hash is needed.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import { normalizeAddress, sourceOf } from '../../platform/network/networks.ts';
import type { RequiredRole, Role } from '../../protocol/api/contract/roles.ts';

/** A user or client of an organization, which signed its request. */
export interface Principal {
  kind: 'user' | 'client';
  uuid: string;
  name: string;
  /** The key, as PEM, with which it has signed. */
  publicKey: string;
}

/** The authenticated caller. */
export interface Actor {
  /**
   * The token's name; `network 10.0.0.0/24` for a caller trusted because of its address; `open` if
   * no token is required.
   */
  name: string;
  roles: readonly Role[];
  tokenUuid?: string;
  /** The one server that an agent's token is valid for; absent: any server. */
  serverUuid?: string;
  /** Who signed the request, in place of a token. It has no roles. */
  principal?: Principal;
}

/**
 * The caller that limits count: its token; or the user or client who signed the request, whatever
 * their address; otherwise the address, also before the caller is authenticated.
 */
export function callerKey(actor: Actor | undefined, address: string): string {
  return actor?.tokenUuid ?? actor?.principal?.uuid ?? sourceOf(normalizeAddress(address));
}

/**
 * The group of agents whose input is counted together: those with the same token, if it is valid
 * for several servers; in a trusted network, those with the same address. Undefined for an agent
 * with a token of its own, and while access is open.
 */
export function senderGroupOf(actor: Actor, address: string): string | undefined {
  if (actor.serverUuid !== undefined || actor === OPEN_ACTOR) return undefined;
  return actor.tokenUuid ?? `address ${sourceOf(normalizeAddress(address))}`;
}

export interface TokenText {
  uuid: string;
  secret: string;
}

/** While `access` is open, on loopback: anybody on this machine. */
export const OPEN_ACTOR: Actor = { name: 'open', roles: ['admin', 'agent'] };

/** A caller of a route that needs no token. It has no rights, whatever its handler asks. */
export const ANONYMOUS_ACTOR: Actor = { name: 'nobody', roles: [] };

const TEXT = /^cnapi_([0-9a-f]{8})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{12})_([A-Za-z0-9_-]{43})$/;
/** RFC 6750, section 2.1; the scheme in any case (RFC 9110, section 11.1). */
const BEARER = /^bearer +(\S{1,200})$/i;

export function formatToken({ uuid, secret }: TokenText): string {
  return `cnapi_${uuid.replaceAll('-', '')}_${secret}`;
}

/** Undefined if the text is not a cnapi token. */
export function parseToken(text: string): TokenText | undefined {
  const match = TEXT.exec(text);
  return match === null ? undefined : { uuid: match.slice(1, 6).join('-'), secret: match[6] ?? '' };
}

/** The token of an `Authorization` header; undefined for any other kind of header. */
export function parseBearer(authorization: string): string | undefined {
  return BEARER.exec(authorization.trim())?.[1];
}

/**
 * Whether a request with these Authorization headers carries a token, valid or not. False for a
 * name and a password (RFC 7617), which clients of Triton's CNAPI send and it never checks: they
 * prove nothing about the caller.
 */
export function carriesToken([header, ...others]: readonly string[]): boolean {
  return header !== undefined && (others.length > 0 || !/^basic(\s|$)/i.test(header.trim()));
}

export function hashSecret(secret: string): Buffer {
  return createHash('sha256').update(secret).digest();
}

/** Compares in constant time. */
export function matchesHash(secret: string, hash: Buffer): boolean {
  const given = hashSecret(secret);
  return given.length === hash.length && timingSafeEqual(given, hash);
}

const RANK: Readonly<Record<Exclude<Role, 'agent'>, number>> = { reader: 1, operator: 2, admin: 3 };

/**
 * What a caller may see beyond the actions of its role. `task-contents`: the params, output and
 * results of tasks. `boot-secrets`: the kernel arguments and flags and the boot modules of servers.
 * The roles that may run tasks and change servers have them.
 */
type Right = 'task-contents' | 'boot-secrets';

const RIGHTS: Readonly<Record<Right, readonly Role[]>> = {
  'task-contents': ['operator', 'admin'],
  'boot-secrets': ['operator', 'admin'],
};

export function hasRight({ roles }: Pick<Actor, 'roles'>, right: Right): boolean {
  return roles.some((role) => RIGHTS[right].includes(role));
}

/**
 * The roles reader, operator and admin each include the ones before; an agent's role is separate.
 */
export function permits(roles: readonly Role[], requiredRole: RequiredRole): boolean {
  if (requiredRole === 'anyone') return true;
  return roles.some((role) =>
    role === 'agent' || requiredRole === 'agent' ? role === requiredRole : RANK[role] >= RANK[requiredRole],
  );
}
