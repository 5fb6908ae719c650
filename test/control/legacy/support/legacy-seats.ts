/** Rows of servers with legacy agents, and of runs that may post to them. */
import { randomUUID } from 'node:crypto';
import {
  claimPosts,
  type PostOrder,
  readPosts,
  readWaitingServers,
} from '../../../../lib/control/legacy/post-store.ts';
import type { PostLimits } from '../../../../lib/control/tasks/store/task-limits.ts';
import type { Queryable } from '../../../../lib/platform/postgres/database.ts';
import { setRunningByHeartbeats } from '../../../support/fake-legacy-agent.ts';

/** A server that runs with a legacy agent. */
export async function legacyServer(database: Queryable): Promise<string> {
  const serverUuid = randomUUID();
  await setRunningByHeartbeats(database, serverUuid);
  return serverUuid;
}

export async function liveRun(database: Queryable, run: string = randomUUID()): Promise<string> {
  await database.query(
    `insert into cnapi_instances (run, cnapi_uuid, url, host, port, pid, version)
       values ($1::uuid, $1::uuid, 'http://127.0.0.1:1', '127.0.0.1', 1, 1, '0')`,
    [run],
  );
  return run;
}

/** A run that stopped, or was found dead, `agoMs` ago. */
export async function killRun(database: Queryable, run: string, agoMs?: number): Promise<void> {
  await database.query(
    `update cnapi_instances set state = 'dead', end_reason = $2::text, ended_at = cnapi_now() - $3::int * interval '1 ms'
       where run = $1::uuid`,
    [run, agoMs === undefined ? 'stopped' : 'lapsed', agoMs ?? 0],
  );
}

const room: PostLimits = { posts: 100, bytes: 1_000_000 };

export async function claimPostsFor(
  database: Queryable,
  run: string,
  options: { servers: readonly string[]; room?: PostLimits; ofServer?: PostLimits },
): Promise<PostOrder[]> {
  const { given } = await claimPosts(database, run, { room, ...options });
  const ids = given.map(({ id }) => id);
  return readPosts(database, run, ids);
}

/** Claims some posts of all servers, as if the claim's answer were lost. */
export async function claimPostsOfAll(database: Queryable, run: string): Promise<void> {
  const { withRoom: servers } = await readWaitingServers(database, 1_000);
  await claimPosts(database, run, { servers, room });
}

export async function postedBy(database: Queryable, id: string): Promise<string | null | undefined> {
  const { rows } = await database.query<{ posted_by: string | null }>(
    'select posted_by from cnapi_tasks where id = $1::uuid',
    [id],
  );
  return rows[0]?.posted_by;
}
