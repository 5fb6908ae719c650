/**
 * SQL of the tokens. All times are the database's: no instance's clock decides whether a token is
 * still valid.
 */
import type { Queryable } from '../../platform/postgres/database.ts';
import { combineStatement, SqlParameters, type StatementPart } from '../../platform/postgres/sql-text.ts';
import type { Role } from '../../protocol/api/contract/roles.ts';
import { TokenNameTakenError } from './access-errors.ts';

interface NewToken {
  uuid: string;
  name: string;
  role: Role;
  serverUuid: string | undefined;
  secretHash: Buffer;
  createdBy: string;
  expiresInSeconds: number | undefined;
}

/** The part of a token that authentication needs. */
export interface KnownToken {
  uuid: string;
  name: string;
  role: Role;
  serverUuid: string | null;
  secretHash: Buffer;
  /** Whether the token had ended, by the database's clock, when it was read. */
  isOver: boolean;
}

/** A token without its secret. */
export interface TokenRow {
  uuid: string;
  name: string;
  role: Role;
  server_uuid: string | null;
  created_at: Date;
  created_by: string;
  expires_at: Date | null;
  last_used_at: Date | null;
  revoked_at: Date | null;
}

const COLUMNS = 'uuid, name, role, server_uuid, created_at, created_by, expires_at, last_used_at, revoked_at';

const IS_OVER = 'revoked_at is not null or coalesce(expires_at <= cnapi_now(), false)';

const KNOWN = `uuid, name, role, server_uuid as "serverUuid", secret_hash as "secretHash", ${IS_OVER} as "isOver"`;

/**
 * `also`: a record of who asks for it, written in the same statement. @throws TokenNameTakenError
 */
export async function insertToken(
  database: Queryable,
  token: NewToken,
  also: StatementPart | undefined,
): Promise<TokenRow> {
  const { text, values } = combineStatement(
    `insert into cnapi_tokens (uuid, name, role, server_uuid, secret_hash, created_by, expires_at)
     values ($1::uuid, $2::text, $3::text, $4::uuid, $5::bytea, $6::text, cnapi_now() + make_interval(secs => $7::float8))
     on conflict (name) where revoked_at is null do nothing
     returning ${COLUMNS}`,
    new SqlParameters([
      token.uuid,
      token.name,
      token.role,
      token.serverUuid ?? null,
      token.secretHash,
      token.createdBy,
      token.expiresInSeconds ?? null,
    ]),
    also,
  );
  const { rows } = await database.query<TokenRow>(text, values);
  const [stored] = rows;
  if (stored === undefined) throw new TokenNameTakenError(token.name);
  return stored;
}

export interface TokenFilter {
  name?: string | undefined;
  /** Only tokens that are revoked or expired, or only the others. */
  isOver?: boolean | undefined;
  /** Only tokens older than this one, whose place in the list never changes. */
  after?: string | undefined;
  limit: number;
}

/** Lists tokens, newest first. */
export async function listTokens(database: Queryable, filter: TokenFilter): Promise<TokenRow[]> {
  const { rows } = await database.query<TokenRow>(
    `select ${COLUMNS} from cnapi_tokens
     where ($1::text is null or name = $1) and ($2::boolean is null or (${IS_OVER}) = $2)
       and ($3::uuid is null or (created_at, uuid) < (select created_at, uuid from cnapi_tokens where uuid = $3::uuid))
     order by created_at desc, uuid desc limit $4::int`,
    [filter.name ?? null, filter.isOver ?? null, filter.after ?? null, filter.limit],
  );
  return rows;
}

export async function isToken(database: Queryable, uuid: string): Promise<boolean> {
  const { rows } = await database.query('select 1 from cnapi_tokens where uuid = $1::uuid', [uuid]);
  return rows.length > 0;
}

/** False if no token has that uuid; repeating it changes nothing. */
export async function revokeToken(database: Queryable, uuid: string): Promise<boolean> {
  const { rowCount } = await database.query(
    'update cnapi_tokens set revoked_at = coalesce(revoked_at, cnapi_now()) where uuid = $1::uuid',
    [uuid],
  );
  return rowCount === 1;
}

/** Returns at most `limit` tokens, the most recently used first. */
export async function readValidTokens(database: Queryable, limit: number): Promise<KnownToken[]> {
  const { rows } = await database.query<KnownToken>(
    `select ${KNOWN} from cnapi_tokens
     where revoked_at is null and (expires_at is null or expires_at > cnapi_now())
     order by last_used_at desc nulls last limit $1::int`,
    [limit],
  );
  return rows;
}

/** Returns the tokens by uuid; unknown uuids are left out. */
export async function readTokens(database: Queryable, uuids: readonly string[]): Promise<Map<string, KnownToken>> {
  const { rows } = await database.query<KnownToken>(`select ${KNOWN} from cnapi_tokens where uuid = any($1::uuid[])`, [
    uuids,
  ]);
  return new Map(rows.map((row) => [row.uuid, row]));
}

/**
 * Returns the tokens in `uuids` that are no longer valid: revoked, expired, or deleted. The cost
 * grows with the number of uuids; see `readTokensEndedSince`.
 */
export async function readEndedTokens(database: Queryable, uuids: readonly string[]): Promise<string[]> {
  const { rows } = await database.query<{ uuid: string }>(
    `select held.uuid from unnest($1::uuid[]) held (uuid) left join cnapi_tokens token on token.uuid = held.uuid
     where token.uuid is null or token.revoked_at is not null or token.expires_at <= cnapi_now()`,
    [uuids],
  );
  return rows.map(({ uuid }) => uuid);
}

/**
 * Returns the tokens that were revoked or expired after `since`, and the time until which that is
 * known; both are the database's, as text. Overlaps by half a minute, longer than any statement
 * takes to commit. Null: from now on.
 */
export async function readTokensEndedSince(
  database: Queryable,
  since: string | null,
): Promise<{ until: string; uuids: string[] }> {
  const { rows } = await database.query<{ until: string; uuids: string[] }>(
    `select clock.now::text as until, array(
       select uuid from cnapi_tokens where revoked_at > clock.since
       union select uuid from cnapi_tokens where expires_at > clock.since and expires_at <= clock.now
     ) as uuids
     from (select cnapi_now() as now, coalesce($1::timestamptz, cnapi_now()) - interval '30 seconds' as since) clock`,
    [since],
  );
  return rows[0] ?? { until: since ?? '', uuids: [] };
}

/** Stored to the minute, to avoid a write per request. */
export async function recordTokenUses(database: Queryable, uuids: readonly string[]): Promise<void> {
  await database.query(
    `update cnapi_tokens set last_used_at = cnapi_now() where uuid in (
       select uuid from cnapi_tokens
       where uuid = any($1::uuid[]) and (last_used_at is null or last_used_at < cnapi_now() - interval '1 minute')
       order by uuid for update skip locked)`,
    [uuids],
  );
}

/** Deletes at most `limit` tokens that were revoked, or expired, more than `days` ago. */
export async function deleteEndedTokens(database: Queryable, days: number, limit: number): Promise<number> {
  const { rowCount } = await database.query(
    `delete from cnapi_tokens where uuid in (
       select uuid from cnapi_tokens where coalesce(revoked_at, expires_at) < cnapi_now() - make_interval(days => $1::int)
       order by uuid limit $2::int for update skip locked)`,
    [days, limit],
  );
  return rowCount;
}
