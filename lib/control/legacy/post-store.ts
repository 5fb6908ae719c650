/**
 * SQL of posts: find waiting servers, claim, read, find again, move to a new run, end the posts of
 * a dead run. Fenced by the roster's row and the run.
 */
import type { Queryable } from '../../platform/postgres/database.ts';
import type { JsonObject } from '../../protocol/json/bounded-json.ts';
import { taskEnds } from '../tasks/store/task.ts';
import { MAX_POSTS_OF_SERVER, type PostLimits } from '../tasks/store/task-limits.ts';
import type { DeadPostingRun } from './dead-posting-runs.ts';

/** A task to post. */
export interface PostOrder {
  id: string;
  server_uuid: string;
  attempt: number;
  name: string;
  params: JsonObject;
  params_bytes: number;
  timeout_ms: number;
  req_id: string | null;
}

/** A task that this run claimed in order to post it; `readPosts` reads it. */
export interface ClaimedPostRow {
  id: string;
  server_uuid: string;
  attempt: number;
  params_bytes: number;
}

export interface ClaimedPosts {
  given: ClaimedPostRow[];
  /** Servers with more queued tasks: claim for them again when some of their posts have ended. */
  full: string[];
  /** Servers whose roster row was locked: claim for them again after a short pause. */
  again: string[];
}

const MAX_ENDED_AT_ONCE = 500;

/** The servers that `claimPosts` may be called for. */
interface WaitingServers {
  withRoom: string[];
  /** Servers that are given more only when some of their posts have ended. */
  full: string[];
}

/**
 * Returns servers with legacy agents and queued tasks, those that have waited longest first. Full
 * servers take no place of the others. Locks nothing.
 */
export async function readWaitingServers(
  database: Queryable,
  limit: number,
  ofServer: PostLimits = MAX_POSTS_OF_SERVER,
): Promise<WaitingServers> {
  const { rows } = await database.query<{ server_uuid: string; is_full: boolean }>(
    `select m.server_uuid, has.tasks >= $2::int or has.bytes >= $3::bigint as is_full
       from (
         select t.server_uuid, min(t.queued_at) as queued_at from cnapi_tasks t
           where t.state = 'queued' group by t.server_uuid offset 0
       ) as m
       cross join lateral (
         select 1 from cnapi_roster_authority r
           where r.server_uuid = m.server_uuid and r.run is null and r.status = 'running' offset 0
       ) as r
       cross join lateral cnapi_given_tasks(m.server_uuid, true) as has
       order by is_full, m.queued_at, m.server_uuid limit $1::int`,
    [limit, ofServer.posts, ofServer.bytes],
  );
  const { withRoom = [], full = [] } = Object.groupBy(rows, (row) => (row.is_full ? 'full' : 'withRoom'));
  return { withRoom: withRoom.map((row) => row.server_uuid), full: full.map((row) => row.server_uuid) };
}

/** Claims for this run the tasks queued for those of these servers that have legacy agents. */
export async function claimPosts(
  database: Queryable,
  run: string,
  {
    servers,
    room,
    ofServer = MAX_POSTS_OF_SERVER,
  }: { servers: readonly string[]; room: PostLimits; ofServer?: PostLimits },
): Promise<ClaimedPosts> {
  const { rows } = await database.query<ClaimedPostRow & { what: 'post' | 'full' | 'again' }>(
    'select * from cnapi_claim_for_posts($1::uuid, $2::uuid[], $3::int, $4::bigint, $5::int, $6::bigint)',
    [run, servers, ofServer.posts, ofServer.bytes, room.posts, room.bytes],
  );
  const claimed: ClaimedPosts = { given: [], full: [], again: [] };
  for (const { what, ...row } of rows) {
    if (what === 'post') claimed.given.push(row);
    else claimed[what].push(row.server_uuid);
  }
  return claimed;
}

const POST_COLUMNS = 'id, server_uuid, attempt, name, params, params_bytes, timeout_ms, req_id';

/**
 * Reads those of these tasks that this run still has to post. Locks nothing, because params may be
 * wide.
 */
export async function readPosts(database: Queryable, run: string, ids: readonly string[]): Promise<PostOrder[]> {
  const { rows } = await database.query<PostOrder>(
    `select ${POST_COLUMNS} from cnapi_tasks
       where id = any ($2::uuid[]) and posted_by = $1::uuid and (state || '') = 'claimed'
       order by queued_at, id`,
    [run, ids],
  );
  return rows;
}

/**
 * Returns tasks that this run has claimed but does not know of, the longest queued first. The
 * answer to their claim was lost, so none of them was posted. `readPosts` reads them.
 */
export async function findLostPosts(
  database: Queryable,
  run: string,
  { known, limit }: { known: readonly string[]; limit: number },
): Promise<ClaimedPostRow[]> {
  const { rows } = await database.query<ClaimedPostRow>(
    `select id, server_uuid, attempt, params_bytes from cnapi_tasks
       where posted_by = $1::uuid and (state || '') = 'claimed' and id <> all ($2::uuid[])
       order by queued_at, id limit $3::int`,
    [run, known, limit],
  );
  return rows;
}

export interface MovedPosts {
  moved: Set<string>;
  /** Posts whose rows are locked: move them again after a short pause. */
  locked: Set<string>;
}

/**
 * Moves posts of a run that was declared dead to its successor. Posts in neither set of the answer
 * have ended.
 */
export async function movePosts(
  database: Queryable,
  { from, to }: { from: string; to: string },
  ids: readonly string[],
): Promise<MovedPosts> {
  const { rows } = await database.query<{ id: string; moved: boolean }>(
    `with free as (
       select id from cnapi_tasks
         where id = any ($3::uuid[]) and (state || '') = 'claimed' and posted_by in ($1::uuid, $2::uuid)
         for update skip locked
     ), moved as (
       update cnapi_tasks set posted_by = $2::uuid where id in (select id from free) returning id
     )
     select t.id, t.id in (select id from moved) as moved from cnapi_tasks t
       where t.id = any ($3::uuid[]) and (t.state || '') = 'claimed' and t.posted_by in ($1::uuid, $2::uuid)`,
    [from, to, ids],
  );
  const { moved = [], locked = [] } = Object.groupBy(rows, (row) => (row.moved ? 'moved' : 'locked'));
  return { moved: new Set(moved.map(({ id }) => id)), locked: new Set(locked.map(({ id }) => id)) };
}

/** The runs with posts that are not live. A dead run never becomes live again. */
export async function readDeadPostingRuns(database: Queryable): Promise<DeadPostingRun[]> {
  const { rows } = await database.query<DeadPostingRun>(
    `select posting.run, coalesce(i.end_reason = 'lapsed', false) as "mayResumeUnderNewRun"
       from (select distinct t.posted_by as run from cnapi_tasks t
         where (t.state || '') = 'claimed' and t.posted_by is not null) as posting
       left join cnapi_instances i on i.run = posting.run
       where i.state is distinct from 'live'`,
  );
  return rows;
}

/**
 * Ends some posts of these dead runs, because no process will receive their outcome. Returns the
 * ids; leaves locked rows. Call it again until it returns none.
 */
export async function endPosts(
  database: Queryable,
  runs: readonly string[],
  limit = MAX_ENDED_AT_ONCE,
): Promise<string[]> {
  const { rows } = await database.query<{ id: string }>('select cnapi_end_posts($1::uuid[], $2::text, $3::int) as id', [
    runs,
    JSON.stringify(taskEnds.senderLost),
    limit,
  ]);
  return rows.map((row) => row.id);
}
