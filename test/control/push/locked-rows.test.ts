/** Somebody holds one row of a job: its other nodes go on (law 9). */
import { randomUUID } from 'node:crypto';
import t, { type Test } from 'tap';
import { claimDuties } from '../../../lib/control/duty/duty-store.ts';
import { abortJob, advanceJob, endJob, startNodes } from '../../../lib/control/push/coordinator-store.ts';
import { storeVotes } from '../../../lib/control/push/courier-store.ts';
import { createPushJob, PUSH_DUTY } from '../../../lib/control/push/push-store.ts';
import { migrations } from '../../../lib/control/schema.ts';
import { newPushJob, votesOf } from '../../interleavings/push-statements.ts';
import { freshDatabase } from '../../support/postgres.ts';

const NODES = 5;
const HARD = { ending: 'aborted', soft: false, reason: 'asked', most: NODES } as const;

/** A job whose commands run on five servers. */
async function running(t: Test) {
  const { database, open } = await freshDatabase(t, { migrations });
  const run = randomUUID();
  await database.query(
    `insert into cnapi_instances (run, cnapi_uuid, url, host, port, pid, version)
       values ($1::uuid, gen_random_uuid(), 'http://127.0.0.1:1', '127.0.0.1', 1, 1, '0')`,
    [run],
  );
  const seats = Array.from({ length: NODES }, () => ({ serverUuid: randomUUID(), incarnation: randomUUID() }));
  await database.query(
    `insert into cnapi_roster_authority (server_uuid, run, epoch, status, reason, since, incarnation)
       select s, $2::uuid, 1, 'running', 'connected', cnapi_now(), i from unnest($1::uuid[], $3::uuid[]) as u (s, i)`,
    [seats.map(({ serverUuid }) => serverUuid), run, seats.map(({ incarnation }) => incarnation)],
  );
  await createPushJob(database, newPushJob(seats.map(({ serverUuid }) => serverUuid)));
  const [duty] = await claimDuties(database, run, { kinds: [PUSH_DUTY], most: 1 });
  if (duty === undefined) throw new Error('the duty cannot be claimed');
  await storeVotes(database, votesOf(duty.id, { seats }, true));
  const ids = seats.map(() => randomUUID());
  await startNodes(database, duty, { ids, timeoutMs: 60_000 });
  await database.query(
    `update cnapi_tasks set state = 'claimed', attempt = 1, epoch = 1, journal_id = gen_random_uuid(),
       claimed_at = cnapi_now(), accepted_at = cnapi_now(), started_at = cnapi_now()`,
  );
  await advanceJob(database, duty);
  const other = open({ maxConnections: 1, lockTimeoutMs: 100 });
  /** Does the work while another session holds rows, and fails at once if it has to wait for them. */
  const whileHeld = <Result>(sql: string, work: (free: typeof other) => Promise<Result>): Promise<Result> =>
    database.transaction(async (holder) => {
      await holder.query(sql);
      return work(other);
    });
  const states = async () => {
    const { rows } = await database.query<{ state: string; count: number }>(
      'select state, count(*)::int as count from cnapi_push_nodes group by state order by state',
    );
    return Object.fromEntries(rows.map(({ state, count }) => [state, count]));
  };
  return { database, duty, states, whileHeld, first: seats[0]?.serverUuid ?? '' };
}

const taskOf = (server: string) => `select 1 from cnapi_tasks where server_uuid = '${server}' for update`;

t.test('an abort cancels the tasks that nobody holds, and later the others', async (t) => {
  const { duty, first, database, whileHeld } = await running(t);
  const told = await whileHeld(taskOf(first), (free) => abortJob(free, duty, HARD));
  t.equal(told.length, NODES - 1);
  t.equal((await advanceJob(database, duty)).toCancel, 1);
  t.same(
    (await abortJob(database, duty, HARD)).map(({ serverUuid }) => serverUuid),
    [first],
  );
});

t.test('a round gives the nodes that nobody holds their ends', async (t) => {
  const { database, duty, first, states, whileHeld } = await running(t);
  await database.query(`update cnapi_tasks set state = 'ended', outcome = 'complete', exit_code = 0`);
  for (const sql of [
    `select 1 from cnapi_push_nodes where server_uuid = '${first}' for update`,
    `select 1 from cnapi_push_busy where server_uuid = '${first}' for update`,
  ]) {
    await whileHeld(sql, (free) => advanceJob(free, duty));
    t.same(await states(), { running: 1, succeeded: NODES - 1 });
  }
  await advanceJob(database, duty);
  t.same(await states(), { succeeded: NODES });
});

t.test('a round ejects the nodes whose agents are gone, but for those whose tasks are held', async (t) => {
  const { database, duty, first, states, whileHeld } = await running(t);
  await database.query(`update cnapi_roster_authority set status = 'unknown'`);
  await whileHeld(taskOf(first), (free) => advanceJob(free, duty));
  t.same(await states(), { crashed: NODES - 1, running: 1 });
  await advanceJob(database, duty);
  t.same(await states(), { crashed: NODES });
  const { rows } = await database.query('select 1 from cnapi_tasks where cancel_requested_at is null');
  t.same(rows, [], 'each of their tasks was cancelled');
});

t.test('a job ends when each node was given up', async (t) => {
  const { database, duty, first, states, whileHeld } = await running(t);
  await abortJob(database, duty, HARD);
  t.equal(await whileHeld(taskOf(first), (free) => endJob(free, duty, 'aborted')), 1);
  t.same(await states(), { aborted: NODES - 1, running: 1 });
  t.equal((await advanceJob(database, duty)).job.state, 'aborting');
  t.equal(await endJob(database, duty, 'aborted'), 0);
  t.equal((await advanceJob(database, duty)).job.state, 'ended');
});
