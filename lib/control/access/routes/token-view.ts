/** Tokens as admins see them. Pure. */
import type { CreatedToken, Token } from '../../../protocol/api/tokens.ts';
import type { TokenRow } from '../token-store.ts';
import type { IssuedToken } from '../tokens.ts';

export function toToken(row: TokenRow): Token {
  return {
    ...row,
    created_at: row.created_at.toISOString(),
    expires_at: row.expires_at?.toISOString() ?? null,
    last_used_at: row.last_used_at?.toISOString() ?? null,
    revoked_at: row.revoked_at?.toISOString() ?? null,
  };
}

export function toCreatedToken({ token, ...row }: IssuedToken): CreatedToken {
  return { ...toToken(row), token };
}
