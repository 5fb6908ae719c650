/**
 * Postgres keeps the locks of a statement until the client has read its whole answer. So the answer
 * of a statement that locks must fit the sockets' buffers, however wide the rows are. Then a client
 * that stops reading blocks no other statement.
 */
import t from 'tap';
import { claimTasks, readDispatches } from '../../lib/control/tasks/dispatch/claim-store.ts';
import type { Database, Queryable } from '../../lib/platform/postgres/database.ts';
import { CuttableProxy } from '../support/cuttable-proxy.ts';
import { FILE_TIMEOUT_MS } from '../support/patience.ts';
import { openDatabase } from '../support/postgres.ts';
import { until } from '../support/until.ts';
import { worldOf } from './interleaving.ts';
import { Lane } from './lane.ts';
import { isSession, type Seat } from './statement.ts';
import { statements, writingCalls } from './statements.ts';
import { WORLD_NAMES } from './worlds.ts';

t.setTimeout(FILE_TIMEOUT_MS);

/** Wider than any column that an answer under locks may have. */
const WIDE_BYTES = 20_000;
/** Room for ids, numbers and short texts. */
const MAX_ROW_BYTES = 1_000;
/** Several of them do not fit the buffers between a client and Postgres. */
const LARGE_BYTES = 4_000_000;

t.test('a statement that locks rows returns small columns only, however wide the rows are', async (t) => {
  const lane = await Lane.open(t);
  await lane.widen(WIDE_BYTES);
  const locking = new Set<string>();
  let widestOfOthers = 0;
  for (const name of WORLD_NAMES) {
    // The reads show that rows are as wide as they should be; one world is enough for that.
    const calls = name === 'linked' ? statements.flatMap(({ calls }) => calls) : writingCalls;
    for (const call of calls) {
      const prepared = call.prepare(worldOf(lane, name));
      if (prepared === undefined) continue;
      await lane.reset(name, prepared.intents);
      const answers: Answer[] = [];
      await prepared
        .run(watching(lane.one, answers))
        .catch((error: unknown) => t.fail(`${name}: ${call.name}`, { error }));
      for (const { text, widest, isLocking } of answers) {
        if (isLocking) locking.add(call.statement);
        else widestOfOthers = Math.max(widestOfOthers, widest);
        if (isLocking && widest > MAX_ROW_BYTES)
          t.fail(`${name}: ${call.name} returns a row of ${widest} bytes while it holds locks`, { text });
      }
    }
  }
  t.ok(locking.size > 20, 'most writing statements lock rows');
  t.ok(widestOfOthers > WIDE_BYTES, 'statements that lock nothing return the wide columns');
});

t.test('a client that stops reading in the middle of its tasks blocks no work on their servers', async (t) => {
  const lane = await Lane.open(t, ['linked']);
  const world = worldOf(lane, 'linked');
  const sessions = world.seats.filter(isSession);
  await lane.widen(LARGE_BYTES);
  await lane.reset('linked', []);
  const { hostname, port } = new URL(lane.url);
  const proxy = await CuttableProxy.start({
    host: '127.0.0.1',
    port: 0,
    target: { host: hostname, port: Number(port) },
  });
  t.teardown(() => proxy.stop());
  const url = new URL(lane.url);
  url.port = String(proxy.port);
  const stalled = openDatabase(url.href, { applicationName: 'stalled', maxConnections: 1 });
  t.teardown(() => stalled.stop());
  await stalled.query('select 1');

  const options = { sessions, resendMs: 3_600_000 };
  proxy.swallow({ only: 'down' });
  const claiming = claimTasks(stalled, world.me.run, options);
  await until(async () => (await countQueued(lane.admin)) === 0, 'the claim to commit although its answer is not read');
  t.same(await lockedRows(lane.admin, world.seats), [], 'no roster row is locked after it');
  proxy.heal();
  const { claimed } = await claiming;
  t.ok(claimed.length > 0);

  proxy.swallow({ only: 'down' });
  const reading = readDispatches(stalled, claimed).catch(() => undefined);
  await until(async () => (await waitOf(lane.admin, 'stalled')) === 'ClientWrite', 'the tasks to fill the buffers');
  t.same(await lockedRows(lane.admin, world.seats), [], 'no roster row is locked while they are read');
  proxy.heal();
  await reading;
});

interface Answer {
  text: string;
  /** Bytes of the longest row, as JSON. */
  widest: number;
  isLocking: boolean;
}

/**
 * Runs each statement in a transaction of its own, and reads what it has locked before it commits.
 */
function watching(database: Pick<Database, 'transaction'>, answers: Answer[]): Queryable {
  return {
    query: (text, values, options) =>
      database.transaction(async (connection) => {
        const answer = await connection.query<never>(text, values, options);
        const widest = Math.max(0, ...answer.rows.map((row) => JSON.stringify(row).length));
        const { rows } = await connection.query(
          `select 1 from pg_locks l join pg_class c on c.oid = l.relation
           where l.pid = pg_backend_pid() and c.relkind = 'r' and c.relname like 'cnapi%'
             and l.mode in ('RowShareLock', 'RowExclusiveLock') limit 1`,
        );
        answers.push({ text, widest, isLocking: rows.length > 0 });
        return answer;
      }),
  };
}

async function countQueued(database: Queryable): Promise<number> {
  const { rows } = await database.query(`select 1 from cnapi_tasks where state = 'queued'`);
  return rows.length;
}

async function waitOf(database: Queryable, applicationName: string): Promise<string | null | undefined> {
  const { rows } = await database.query<{ wait_event: string | null }>(
    'select wait_event from pg_stat_activity where application_name = $1',
    [applicationName],
  );
  return rows[0]?.wait_event;
}

/** The servers whose roster row cannot be locked at once. */
async function lockedRows(database: Queryable, seats: readonly Seat[]): Promise<string[]> {
  const uuids = seats.map(({ serverUuid }) => serverUuid);
  const { rows } = await database.query<{ server_uuid: string }>(
    'select server_uuid from cnapi_roster_authority where server_uuid = any ($1::uuid[]) for update skip locked',
    [uuids],
  );
  return uuids.filter((uuid) => !rows.some(({ server_uuid }) => server_uuid === uuid));
}
