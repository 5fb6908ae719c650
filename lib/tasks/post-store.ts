/** SQL of posts: claim, find again, move to a new run, end those of a dead one. Fenced by the roster's row and the run. */
import type { Queryable } from '../moray/database.ts';
import { type JsonObject, taskEnds } from './task.ts';

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

/** What one claim may take at most: tasks, and bytes of their params. */
export interface PostRoom {
  posts: number;
  bytes: number;
}

export interface ClaimedPosts {
  orders: PostOrder[];
  /** Servers with more in their queue: claim for them again when some of theirs have ended. */
  full: string[];
}

/** Posted to one server and not ended, over all instances. An old agent starts a process for each at once. */
const MAX_POSTS_OF_SERVER: PostRoom = { posts: 128, bytes: 16 * 1024 * 1024 };
const MAX_ENDED_AT_ONCE = 500;

/** Claims for this run what is queued for servers with old agents: for these, or for all. */
export async function claimPosts(
  database: Queryable,
  run: string,
  {
    servers,
    room,
    ofServer = MAX_POSTS_OF_SERVER,
  }: { servers?: readonly string[]; room: PostRoom; ofServer?: PostRoom },
): Promise<ClaimedPosts> {
  const { rows } = await database.query<PostOrder & { what: 'post' | 'full' }>(
    'select * from cnapi_claim_posts($1::uuid, $2::uuid[], $3::int, $4::bigint, $5::int, $6::bigint)',
    [run, servers ?? null, ofServer.posts, ofServer.bytes, room.posts, room.bytes],
  );
  const claimed: ClaimedPosts = { orders: [], full: [] };
  for (const { what, ...order } of rows) {
    if (what === 'post') claimed.orders.push(order);
    else claimed.full.push(order.server_uuid);
  }
  return claimed;
}

/** What this run has claimed and does not hold: the answer to a claim was lost on its way, so none of it was posted. */
export async function readLostPosts(
  database: Queryable,
  run: string,
  { held, limit }: { held: readonly string[]; limit: number },
): Promise<PostOrder[]> {
  const { rows } = await database.query<PostOrder>(
    `select id, server_uuid, attempt, name, params, params_bytes, timeout_ms, req_id from cnapi_tasks
       where posted_by = $1::uuid and state = 'claimed' and id <> all ($2::uuid[])
       order by queued_at, id limit $3::int`,
    [run, held, limit],
  );
  return rows;
}

/** The posts of a run that was declared dead go on under its successor. Returns those that do; the others have ended. */
export async function movePosts(
  database: Queryable,
  { from, to }: { from: string; to: string },
  ids: readonly string[],
): Promise<Set<string>> {
  const { rows } = await database.query<{ id: string }>(
    `update cnapi_tasks set posted_by = $2::uuid
       where state = 'claimed' and posted_by in ($1::uuid, $2::uuid)
         and id = any (array(select id from cnapi_tasks where id = any ($3::uuid[]) order by id for update))
       returning id`,
    [from, to, ids],
  );
  return new Set(rows.map((row) => row.id));
}

/** Ends some of what dead runs have posted; returns the ids. Call it again until there are none. */
export async function endDeadPosts(database: Queryable, graceMs: number, most = MAX_ENDED_AT_ONCE): Promise<string[]> {
  const { rows } = await database.query<{ id: string }>(
    'select cnapi_end_dead_posts($1::int, $2::text, $3::int) as id',
    [graceMs, JSON.stringify(taskEnds.posterLost), most],
  );
  return rows.map((row) => row.id);
}
