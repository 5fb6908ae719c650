/** SQL of the signatures of changes that were received, so that nobody can send one again. */

import type { Queryable } from '../../platform/postgres/database.ts';

/**
 * A signature is valid until 15 minutes after its time, which is at most 15 minutes ahead when it
 * is received; by the same clock.
 */
const KEEP_SECONDS = 3600;

/** False if it was received before, at any instance. */
export async function rememberSignature(database: Queryable, digest: Buffer): Promise<boolean> {
  const { rowCount } = await database.query(
    'insert into cnapi_request_signatures (digest) values ($1::bytea) on conflict do nothing',
    [digest],
  );
  return rowCount === 1;
}

/** Deletes at most `limit` signatures that are no longer valid. */
export async function forgetSignatures(database: Queryable, limit: number): Promise<number> {
  const { rowCount } = await database.query(
    `delete from cnapi_request_signatures where digest in (
       select digest from cnapi_request_signatures where received_at < cnapi_now() - make_interval(secs => $1::float8)
       order by digest limit $2::int for update skip locked)`,
    [KEEP_SECONDS, limit],
  );
  return rowCount;
}
