/** A push job on a real Postgres, without instances and agents: a test takes each step itself. */
import { randomUUID } from 'node:crypto';
import type { HeldDuty } from '../../../lib/control/duty/duty.ts';
import { claimDuties } from '../../../lib/control/duty/duty-store.ts';
import { advanceJob, startNodes } from '../../../lib/control/push/coordinator/coordinator-store.ts';
import { storeVotes } from '../../../lib/control/push/messenger/messenger-store.ts';
import { createPushJob, type NewPushJob, PUSH_DUTY } from '../../../lib/control/push/push-store.ts';
import { migrations } from '../../../lib/control/subsystem-list.ts';
import type { Queryable } from '../../../lib/platform/postgres/database.ts';
import { newPushJob, votesOf } from '../../interleavings/push-statements.ts';
import { freshDatabase, type Teardown } from '../../support/postgres.ts';
import { liveRun } from '../legacy/support/legacy-seats.ts';

/** A server whose agent is connected, and the agent's process. */
export interface AgentSeat {
  serverUuid: string;
  incarnation: string;
}

/** A database with a live run, and servers whose agents are connected to it, in their order. */
export async function seatedDatabase(t: Teardown, count: number) {
  const { database, ...zone } = await freshDatabase(t, { migrations });
  const run = await liveRun(database);
  const servers = Array.from({ length: count }, () => randomUUID()).sort();
  const seats = servers.map((serverUuid): AgentSeat => ({ serverUuid, incarnation: randomUUID() }));
  await database.query(
    `insert into cnapi_roster_authority (server_uuid, run, epoch, status, reason, since, incarnation)
       select s, $2::uuid, 1, 'running', 'connected', cnapi_now(), i from unnest($1::uuid[], $3::uuid[]) as u (s, i)`,
    [servers, run, seats.map(({ incarnation }) => incarnation)],
  );
  const [first] = seats;
  if (first === undefined) throw new Error('there is no server');
  return { ...zone, database, run, seats, first };
}

/** Creates a job of these servers, and claims its duty. */
export async function claimedJob(
  database: Queryable,
  run: string,
  { seats, fields = {} }: { seats: readonly AgentSeat[]; fields?: Partial<NewPushJob> },
): Promise<HeldDuty> {
  await createPushJob(database, { ...newPushJob(seats.map(({ serverUuid }) => serverUuid)), ...fields });
  const [duty] = await claimDuties(database, run, { kinds: [PUSH_DUTY], limit: 1 });
  if (duty === undefined) throw new Error('the duty cannot be claimed');
  return duty;
}

/** All vote for the job, and all of their commands run. */
export async function startAll(database: Queryable, duty: HeldDuty, seats: readonly AgentSeat[]): Promise<void> {
  await storeVotes(database, votesOf(duty.id, { seats }, true));
  await startNodes(database, duty, { ids: seats.map(() => randomUUID()), runMs: 0 });
  await beginCommands(database, duty.id);
  await advanceJob(database, duty);
}

/** The agents take the tasks that wait, and run their commands. */
export async function beginCommands(database: Queryable, job: string): Promise<void> {
  await database.query(
    `update cnapi_tasks set state = 'claimed', attempt = 1, epoch = 1, journal_id = gen_random_uuid(),
       claimed_at = cnapi_now(), accepted_at = cnapi_now(), started_at = cnapi_now()
       where state = 'queued' and id in (select task from cnapi_push_nodes where job = $1::uuid)`,
    [job],
  );
}

/** All commands succeed. */
export async function endCommands(database: Queryable, job: string): Promise<void> {
  await beginCommands(database, job);
  await database.query(
    `update cnapi_tasks set state = 'ended', outcome = 'complete', exit_code = 0
       where state <> 'ended' and id in (select task from cnapi_push_nodes where job = $1::uuid)`,
    [job],
  );
}

/** How many nodes of all jobs are in each state. */
export async function nodeStates(database: Queryable): Promise<Record<string, number>> {
  const { rows } = await database.query<{ state: string; count: number }>(
    'select state, count(*)::int as count from cnapi_push_nodes group by state order by state',
  );
  return Object.fromEntries(rows.map(({ state, count }) => [state, count]));
}

/** A statement that locks a row of a table of push jobs that is about this server. */
export const lockOf = (table: 'cnapi_push_nodes' | 'cnapi_push_busy' | 'cnapi_tasks', server: string): string =>
  `select 1 from ${table} where server_uuid = '${server}' for update`;

/** How many rows of these tables this transaction has read, and perhaps some before it. */
export async function rowsRead(connection: Queryable, tables: readonly string[]): Promise<number> {
  const { rows } = await connection.query<{ reads: number; found: number }>(
    `select sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::int as reads, count(*)::int as found
       from pg_stat_xact_user_tables where relname = any ($1::text[])`,
    [tables],
  );
  const [row] = rows;
  if (row?.found !== tables.length) throw new Error(`not all of these tables exist: ${tables.join(', ')}`);
  return row.reads;
}
