/**
 * How long one claim takes of one task each for many servers. An instance makes such a claim after
 * an outage, when all its servers have queued tasks. The floor is a plain update of as many rows of
 * the same table.
 */
import { migrations } from '../../../lib/control/subsystem-list.ts';
import { claimTasks } from '../../../lib/control/tasks/dispatch/claim-store.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import { migrate } from '../../../lib/platform/postgres/migrations.ts';
import { PostgresDatabase } from '../../../lib/platform/postgres/pool.ts';
import { systemRandom } from '../../../lib/platform/random.ts';
import { systemClock as clock } from '../../../lib/platform/time/clock.ts';
import type { BenchContext, Figure, Result } from '../figure.ts';
import { median } from '../statistics.ts';

export const claims: Figure = {
  name: 'claims',
  says: 'one claim for 500 and for 2,000 servers with one task each',
  seconds: 15,
  measure,
};

/** The limit for each number of servers. */
const SIZES = [
  { servers: 500, atMostMs: 50 },
  { servers: 2_000, atMostMs: 200 },
];

async function measure({ foundation, isQuick }: BenchContext): Promise<readonly Result[]> {
  const rounds = isQuick ? 2 : 12;
  const url = await foundation.createDatabase();
  try {
    await using database = new PostgresDatabase({ url, applicationName: 'bench', log: silentLogger, clock });
    await migrate(database, migrations, { log: silentLogger });
    const results: Result[] = [];
    for (const { servers, atMostMs } of SIZES) {
      const [claimed, updated]: [number[], number[]] = [[], []];
      for (let round = 0; round < rounds; round += 1) {
        const took = await claimOnce(database, servers);
        // The first round warms up plans and caches.
        if (round > 0) claimed.push(took.claimMs);
        if (round > 0) updated.push(took.updateMs);
      }
      results.push({
        what: `one claim, ${servers.toLocaleString('en')} servers with one task each`,
        value: median(claimed),
        unit: 'ms',
        floor: { of: 'a plain update of as many tasks', value: median(updated) },
        limit: { on: 'value', atMost: atMostMs },
        notes: [`median of ${claimed.length}; ${claimed.map((ms) => ms.toFixed(0)).join(', ')} ms`],
      });
    }
    return results;
  } finally {
    await foundation.dropDatabase(url);
  }
}

async function claimOnce(database: PostgresDatabase, count: number): Promise<{ claimMs: number; updateMs: number }> {
  const run = systemRandom.uuid();
  const sessions = Array.from({ length: count }, () => {
    return { serverUuid: systemRandom.uuid(), epoch: 1, journalId: systemRandom.uuid() };
  });
  const servers = sessions.map(({ serverUuid }) => serverUuid);
  await database.query(
    `insert into cnapi_roster_authority (server_uuid, run, epoch, status, reason, since)
       select server, $2::uuid, 1, 'running', 'connected', cnapi_now() from unnest($1::uuid[]) as server`,
    [servers, run],
  );
  await database.query(
    `insert into cnapi_tasks (id, server_uuid, name, params, params_bytes, timeout_ms, idempotent, request_hash, created_at, queued_at)
       select gen_random_uuid(), server, 'nop', '{}', 2, 3600000, true, 'hash', cnapi_now(), cnapi_now()
         from unnest($1::uuid[]) as server`,
    [servers],
  );
  const begunAt = clock.now();
  const { claimed } = await claimTasks(database, run, { sessions, resendMs: 5_000 });
  const claimedAt = clock.now();
  if (claimed.length !== count) throw new Error(`${claimed.length} of ${count} tasks were claimed`);
  await database.query(
    `update cnapi_tasks set sent_at = cnapi_now() where state = 'claimed' and server_uuid = any ($1::uuid[])`,
    [servers],
  );
  return { claimMs: claimedAt - begunAt, updateMs: clock.now() - claimedAt };
}
