/**
 * The floor of push jobs: the tasks of their nodes alone. They are created, claimed, read and
 * recorded by the product's own statements, each after the other, in a database without any other
 * work; nobody votes, and nothing is sent.
 */
import { migrations } from '../../lib/control/subsystem-list.ts';
import { claimTasks, readDispatches } from '../../lib/control/tasks/dispatch/claim-store.ts';
import { type AttemptReport, recordReports } from '../../lib/control/tasks/reports/report-store.ts';
import { silentLogger } from '../../lib/platform/log.ts';
import type { Queryable } from '../../lib/platform/postgres/database.ts';
import { migrate } from '../../lib/platform/postgres/migrations.ts';
import { PostgresDatabase } from '../../lib/platform/postgres/pool.ts';
import { systemRandom } from '../../lib/platform/random.ts';
import { systemClock as clock, isoNow } from '../../lib/platform/time/clock.ts';
import type { BenchContext } from './figure.ts';

export const FLOOR_OF = 'their tasks alone, in the database';
const CREATED_AT_ONCE = 1_000;
const SESSIONS_AT_ONCE = 500;

interface Session {
  serverUuid: string;
  epoch: number;
  journalId: string;
}

/** Returns seconds, for one task on each of so many servers. */
export async function measureTasksFloor({ foundation }: BenchContext, servers: number): Promise<number> {
  const url = await foundation.createDatabase();
  try {
    await using database = new PostgresDatabase({ url, applicationName: 'bench', log: silentLogger, clock });
    await migrate(database, migrations, { log: silentLogger });
    const run = systemRandom.uuid();
    const sessions = await createSessions(database, run, servers);
    // The first pass plans the statements.
    await runTasks(database, run, sessions.slice(0, SESSIONS_AT_ONCE));
    const startedAt = clock.now();
    await runTasks(database, run, sessions);
    return (clock.now() - startedAt) / 1000;
  } finally {
    await foundation.dropDatabase(url);
  }
}

async function createSessions(database: Queryable, run: string, count: number): Promise<Session[]> {
  const sessions = Array.from({ length: count }, () => {
    return { serverUuid: systemRandom.uuid(), epoch: 1, journalId: systemRandom.uuid() };
  });
  await database.query(
    `insert into cnapi_roster_authority (server_uuid, run, epoch, status, reason, since)
       select server, $2::uuid, 1, 'running', 'connected', cnapi_now() from unnest($1::uuid[]) as server`,
    [sessions.map(({ serverUuid }) => serverUuid), run],
  );
  return sessions;
}

async function runTasks(database: Queryable, run: string, sessions: readonly Session[]): Promise<void> {
  for (const some of partsOf(sessions, CREATED_AT_ONCE))
    await database.query(
      `select cnapi_create_tasks($1::uuid[], $2::uuid[], 'push_command', '{}', 60000, false, null, null)`,
      [some.map(() => systemRandom.uuid()), some.map(({ serverUuid }) => serverUuid)],
    );
  for (const some of partsOf(sessions, SESSIONS_AT_ONCE)) {
    const { claimed } = await claimTasks(database, run, { sessions: some, resendMs: 5_000 });
    if (claimed.length !== some.length) throw new Error(`${claimed.length} of ${some.length} tasks were claimed`);
    await readDispatches(database, claimed);
    await recordReports(database, claimed.flatMap(reportsOf));
  }
}

function reportsOf({ id, serverUuid, attempt }: { id: string; serverUuid: string; attempt: number }): AttemptReport[] {
  const subject = { id, serverUuid, attempt };
  const reportedAt = isoNow(clock);
  return [
    { subject, report: { name: 'accepted', reportedAt } },
    { subject, report: { name: 'started', reportedAt } },
    { subject, report: { name: 'complete', reportedAt, resultJson: '{}' } },
  ];
}

function partsOf<Item>(items: readonly Item[], size: number): Item[][] {
  return Array.from({ length: Math.ceil(items.length / size) }, (_, part) =>
    items.slice(part * size, (part + 1) * size),
  );
}
