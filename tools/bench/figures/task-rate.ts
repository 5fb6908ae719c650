/**
 * How many tasks a zone takes, carries out and answers a second, 64 in flight at three instances, beside what the database
 * alone does when Debian's pgbench sends it the same statements. Both take turns, so that both see the same machine.
 */
import { migrations } from '../../../lib/app.ts';
import { silentLogger } from '../../../lib/log.ts';
import { migrate } from '../../../lib/moray/migrations.ts';
import { PostgresDatabase } from '../../../lib/moray/pool.ts';
import { systemClock as clock } from '../../../lib/ports/clock.ts';
import { BenchCaller, expectStatus } from '../caller.ts';
import type { BenchContext, Figure, Result } from '../figure.ts';
import { PgbenchError, runPgbench } from '../pgbench.ts';
import { median } from '../statistics.ts';
import { prepareTaskLife, taskLifeScript } from '../task-life.ts';
import type { Zone } from '../zone.ts';

export const taskRate: Figure = {
  name: 'task-rate',
  says: 'tasks a second, 64 in flight at three instances, beside their statements by pgbench',
  seconds: 45,
  measure,
};

const IN_FLIGHT = 64;
const SERVERS = 100;

async function measure(context: BenchContext): Promise<readonly Result[]> {
  const { isQuick, startZone } = context;
  const [rounds, seconds] = isQuick ? [1, 1] : [3, 5];
  const zone = await startZone();
  await zone.addFleet({ agents: SERVERS });
  await zone.untilKnown(SERVERS);
  await using floor = await prepareFloor(context);
  await tasksPerSecond(zone, seconds);
  const [rates, floors]: [number[], number[]] = [[], []];
  for (let round = 0; round < rounds; round++) {
    rates.push(await tasksPerSecond(zone, seconds));
    if (floor.why === undefined) floors.push(await floor.perSecond(seconds));
  }
  const whole = { what: 'tasks per second, 64 in flight, three instances', value: median(rates), unit: '/s' };
  const notes = [`nop by POST and wait, on ${SERVERS} servers of one fleet; median of ${rounds} × ${seconds} s`];
  if (floor.why !== undefined) return [{ ...whole, notes: [...notes, floor.why] }];
  const of = 'create, claim, record by pgbench';
  return [{ ...whole, floor: { of, value: median(floors) }, limit: { on: 'ratio', atLeast: 0.3 }, notes }];
}

async function tasksPerSecond(zone: Zone, seconds: number): Promise<number> {
  const rows = await zone.sql<{ uuid: string }>('select server_uuid as uuid from cnapi_roster_authority');
  const servers = rows.map(({ uuid }) => uuid);
  const urls = zone.instances.map(({ url }) => url);
  using caller = new BenchCaller();
  const startedAt = clock.now();
  const until = startedAt + seconds * 1000;
  let [begun, ended] = [0, 0];
  const lane = async () => {
    while (clock.now() < until) {
      const turn = begun++;
      const [postUrl, waitUrl] = [urls[turn % urls.length], urls[(turn + 1) % urls.length]];
      const posted = await caller.post(`${postUrl}/servers/${servers[turn % servers.length]}/nop`, {});
      const { id } = JSON.parse(expectStatus(posted, 200).text) as { id: string };
      const waited = expectStatus(await caller.get(`${waitUrl}/tasks/${id}/wait?timeout=30`), 200);
      if ((JSON.parse(waited.text) as { status: string }).status !== 'complete') throw new Error(waited.text);
      ended += 1;
    }
  };
  await Promise.all(Array.from({ length: IN_FLIGHT }, lane));
  return ended / ((clock.now() - startedAt) / 1000);
}

/** A database with the product's tables, on the same server. */
async function prepareFloor({ foundation, directory }: BenchContext) {
  const url = await foundation.createDatabase();
  const options = { url, applicationName: 'bench', log: silentLogger, clock };
  await using database = new PostgresDatabase(options);
  await migrate(database, migrations, { log: silentLogger });
  await prepareTaskLife(database, IN_FLIGHT);
  const script = await taskLifeScript();
  const perSecond = (seconds: number) => runPgbench({ url, script, clients: IN_FLIGHT, seconds, directory });
  const why = await perSecond(1).then(() => undefined, sayWhy);
  return { perSecond, why, [Symbol.asyncDispose]: () => foundation.dropDatabase(url) };
}

/** Why there is no floor; anything but a missing program is a defect. */
function sayWhy(error: unknown): string {
  if (error instanceof PgbenchError) return error.message;
  throw error;
}
