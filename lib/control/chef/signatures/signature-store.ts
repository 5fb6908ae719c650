/** SQL of the signatures of changes that were received, so that nobody can send one again. */

import type { Queryable } from '../../../platform/postgres/database.ts';

/**
 * A signature is valid until 15 minutes after its time, which is at most 15 minutes ahead when it
 * is received; by the same clock.
 */
const KEEP_SECONDS = 3600;
/**
 * Limits the changes of one user or client within KEEP_SECONDS. Counting so many takes
 * milliseconds, and people and their tools send far fewer.
 */
export const MAX_SIGNATURES = 10_000;

/**
 * Chef's clients repeat a request after 5xx with the headers that they signed once: five times,
 * after waits that add up to at most 124 seconds. The rest is for the answers.
 */
const MAX_REPETITIONS = 5;
const REPEAT_SECONDS = 150;

/** `replayed`: it was received before, at any instance. `full`: its sender has sent too many. */
type Reception = 'new' | 'replayed' | 'full';

/** A change that was received from an address. */
interface ReceivedChange {
  digest: Buffer;
  source: string;
}

/**
 * A permitted repetition is `new` as well, and uses up the permission. Those that are received at
 * the same time may exceed the maximum.
 */
export async function rememberSignature(
  database: Queryable,
  {
    digest,
    source,
    principal,
    limit = MAX_SIGNATURES,
  }: ReceivedChange & { principal: string; limit?: number | undefined },
): Promise<Reception> {
  const { rows } = await database.query<{ has_room: boolean; is_new: boolean }>(
    `with room as materialized (
       select count(*) < $3::int as has_room
         from (select from cnapi_request_signatures
           where principal = $2::uuid and received_at > cnapi_now() - make_interval(secs => $4::float8)
           limit $3::int) as s
     ), made as (
       insert into cnapi_request_signatures as s (digest, principal)
         select $1::bytea, $2::uuid from room
           where has_room or exists (select from cnapi_request_signatures where digest = $1::bytea)
         on conflict (digest) do update set repeated_from = null, repetitions = s.repetitions + 1
           where s.repeated_from = $5::text and s.repetitions < $6::int
             and s.received_at > cnapi_now() - make_interval(secs => $7::float8)
         returning 1
     )
     select has_room, exists (select from made) as is_new from room`,
    [digest, principal, limit, KEEP_SECONDS, source, MAX_REPETITIONS, REPEAT_SECONDS],
    { name: 'remember signature' },
  );
  const [{ has_room: hasRoom, is_new: isNew } = { has_room: false, is_new: false }] = rows;
  if (isNew) return 'new';
  return hasRoom ? 'replayed' : 'full';
}

/**
 * The change was refused for now: it may be received once more from this address, if it is soon.
 */
export async function permitRepetition(database: Queryable, { digest, source }: ReceivedChange): Promise<void> {
  await database.query('update cnapi_request_signatures set repeated_from = $2::text where digest = $1::bytea', [
    digest,
    source,
  ]);
}

/** Deletes at most `limit` signatures that are no longer valid. */
export async function deleteOldSignatures(database: Queryable, limit: number): Promise<number> {
  const { rowCount } = await database.query(
    `delete from cnapi_request_signatures where digest in (
       select digest from cnapi_request_signatures where received_at < cnapi_now() - make_interval(secs => $1::float8)
       order by digest limit $2::int for update skip locked)`,
    [KEEP_SECONDS, limit],
  );
  return rowCount;
}
