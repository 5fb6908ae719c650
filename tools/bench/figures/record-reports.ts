/**
 * How many agents' reports the recorder's statement stores per second. The reports say that tasks
 * are accepted, started, write output and end; statements have 4,000 or 500 reports. The floor is
 * an update of as many rows of the same table by `unnest`. Both sizes should have the same rate,
 * because the cost of a statement is linear.
 */
import { migrations } from '../../../lib/control/subsystem-list.ts';
import { type AttemptReport, recordReports } from '../../../lib/control/tasks/reports/report-store.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import type { Queryable } from '../../../lib/platform/postgres/database.ts';
import { migrate } from '../../../lib/platform/postgres/migrations.ts';
import { PostgresDatabase } from '../../../lib/platform/postgres/pool.ts';
import { systemRandom } from '../../../lib/platform/random.ts';
import { systemClock as clock } from '../../../lib/platform/time/clock.ts';
import type { BenchContext, Figure, Result } from '../figure.ts';
import { median } from '../statistics.ts';

const LARGE = 4_000;
const SMALL = 500;
const REPORTS_OF_TASK = 4;
/** Per second, on a machine without other load. */
const AT_LEAST = 10_000;
/** Minimum share of the small statements' rate. */
const LINEAR = 0.8;

export const recordReportsRate: Figure = {
  name: 'record-reports',
  says: 'reports of agents stored per second, one statement after the other',
  seconds: 20,
  measure,
};

async function measure({ foundation, isQuick }: BenchContext): Promise<readonly Result[]> {
  const rounds = isQuick ? 2 : 9;
  const url = await foundation.createDatabase();
  const rates: Record<'large' | 'small' | 'floor', number[]> = { large: [], small: [], floor: [] };
  {
    await using database = new PostgresDatabase({ url, applicationName: 'bench', log: silentLogger, clock });
    await migrate(database, migrations, { log: silentLogger });
    // Statistics from an hour without claimed tasks: with these a plan was once quadratic.
    await (await recordingOf(database, LARGE))();
    await database.query('vacuum analyze cnapi_tasks');
    for (let round = 0; round < rounds; round += 1) {
      rates.floor.push(await rateOf(LARGE, async () => updateOf(database, await claimed(database, LARGE))));
      rates.large.push(await rateOf(LARGE, () => recordingOf(database, LARGE)));
      rates.small.push(await rateOf(SMALL, () => recordingOf(database, SMALL)));
    }
  }
  await foundation.dropDatabase(url);
  const by = `medians of ${rounds} by turns; ${REPORTS_OF_TASK} reports of each task`;
  const large = { value: median(rates.large), unit: '/s' };
  return [
    {
      what: `reports recorded per second, ${LARGE.toLocaleString('en')} in a statement`,
      ...large,
      floor: { of: 'rows of the same table updated by unnest', value: median(rates.floor) },
      limit: { on: 'value', atLeast: AT_LEAST },
      notes: [by],
    },
    {
      what: 'the same, beside smaller statements',
      ...large,
      floor: { of: `${SMALL} in a statement`, value: median(rates.small) },
      limit: { on: 'ratio', atLeast: LINEAR },
    },
  ];
}

/** Measures the time of the function that `prepare` returns. */
async function rateOf(count: number, prepare: () => Promise<() => Promise<unknown>>): Promise<number> {
  const work = await prepare();
  const beganAt = clock.now();
  await work();
  return count / ((clock.now() - beganAt) / 1000);
}

async function recordingOf(database: Queryable, count: number): Promise<() => Promise<unknown>> {
  const tasks = await claimed(database, count / REPORTS_OF_TASK);
  const reports = tasks.flatMap((subject): AttemptReport[] => [
    { subject, report: { name: 'accepted', reportedAt } },
    { subject, report: { name: 'started', reportedAt } },
    { subject, report: { name: 'output', reportedAt, stream: 'stdout', offset: 0, text: 'done\n', bytes: 5 } },
    { subject, report: { name: 'complete', reportedAt, resultJson: '{"exit_status":0}' } },
  ]);
  return () => recordReports(database, reports);
}

async function updateOf(database: Queryable, tasks: readonly { id: string }[]): Promise<() => Promise<unknown>> {
  const ids = tasks.map(({ id }) => id);
  return () =>
    database.query(
      `update cnapi_tasks t set progress = n.progress::json from unnest($1::uuid[], $2::text[]) as n (id, progress)
         where t.id = n.id`,
      [ids, ids.map(() => '{"value":50}')],
    );
}

const reportedAt = '2030-01-01T00:00:00.000Z';

/** Creates tasks that a server's agent has been given. */
async function claimed(database: Queryable, count: number) {
  const serverUuid = systemRandom.uuid();
  const { rows } = await database.query<{ id: string }>(
    `insert into cnapi_tasks (id, server_uuid, name, params, timeout_ms, idempotent, request_hash, created_at, queued_at,
         state, attempt, epoch, journal_id, claimed_at)
       select gen_random_uuid(), $1::uuid, 'nop', '{}', 1000, false, '', cnapi_now(), cnapi_now(),
           'claimed', 1, 1, gen_random_uuid(), cnapi_now()
         from generate_series(1, $2::int)
       returning id`,
    [serverUuid, count],
  );
  return rows.map(({ id }) => ({ id, serverUuid, attempt: 1 }));
}
