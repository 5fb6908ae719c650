/** The roles of tokens, and the names that tokens may have. Pure. */

export const TOKEN_ROLES = ['reader', 'operator', 'admin', 'agent'] as const;
export type Role = (typeof TOKEN_ROLES)[number];

/** The role that a route requires of its caller; `anyone` needs no token. */
export type RequiredRole = Role | 'anyone';

const NAME = /^[\p{L}\p{N}][\p{L}\p{N} ._@:/+-]{0,99}$/u;
/** Names that the audit uses for callers without a token. */
const TAKEN = /^(open|nobody|configuration|expiry|network .*)$/i;

/** Why a token cannot have this name; undefined if it can. */
export function reasonNotAName(name: string): string | undefined {
  if (!NAME.test(name))
    return 'is not 1 to 100 letters, digits, spaces or . _ @ : / + -, beginning with a letter or digit';
  return TAKEN.test(name) ? 'is reserved for callers without a token' : undefined;
}
