/** When an instance may end what nobody takes or reports: only what had its time while the database answered. */
import t, { type Test } from 'tap';
import { DatabaseUnavailableError } from '../../lib/errors.ts';
import { silentLogger } from '../../lib/log.ts';
import { systemClock } from '../../lib/ports/clock.ts';
import { Dispatcher, type DispatcherDeps } from '../../lib/tasks/dispatcher.ts';
import { until } from '../support/until.ts';

const config = { taskStartByMs: 30_000, taskResendMs: 5_000, taskOverdueMs: 60_000 };

const HOUR_MS = 3_600_000;

/** A dispatcher whose polls a test answers: at `now` of its clock, with the database's `aheadMs` before it. */
function start(t: Test) {
  const world = { isAway: false, now: 0, aheadMs: 1_700_000_000_000, swept: [] as unknown[], claimed: [] as unknown[] };
  const session = { serverUuid: 's', epoch: 1, journalId: 'j', capabilities: new Set(), send: () => true };
  const query = async (text: string, values: unknown[] = []) => {
    if (world.isAway) throw new DatabaseUnavailableError();
    if (text.includes('cnapi_sweep_tasks')) world.swept = values.slice(0, 2);
    if (text.includes('cnapi_claim_tasks')) world.claimed.push(values[4]);
    const isPoll = text.includes('"databaseMs"');
    const rows = isPoll ? [{ databaseMs: world.now + world.aheadMs, serverUuids: ['s'] }] : [];
    return { rows, rowCount: 0 };
  };
  const deps = {
    database: { query },
    bus: { publish: () => undefined },
    sessions: { run: () => '', get: () => session, all: () => [session] },
    clock: { ...systemClock, now: () => world.now },
    log: silentLogger,
    config,
    wake: () => undefined,
  };
  const dispatcher = new Dispatcher(deps as unknown as DispatcherDeps);
  t.teardown(() => dispatcher.stop());
  const sweepAt = async (now: number) => {
    world.now = now;
    await dispatcher.poll().catch(() => undefined);
    return world.swept;
  };
  return { dispatcher, sweepAt, world };
}

t.test('an instance that could not read for a while gives what waited its time anew', async (t) => {
  const { sweepAt, world } = start(t);
  t.same(await sweepAt(0), [null, null], 'just started');
  t.same(await sweepAt(30_000), [30_000, null]);
  t.same(await sweepAt(60_000), [30_000, 60_000]);
  world.isAway = true;
  await sweepAt(65_000);
  world.isAway = false;
  t.same(await sweepAt(95_000), [null, null], 'the database has just come back');
  t.same(await sweepAt(125_000), [30_000, null]);
});

t.test("what the database's clock was set ahead by is given to what may run, for as long as it may", async (t) => {
  const { dispatcher, sweepAt, world } = start(t);
  for (const now of [0, 60_000]) await sweepAt(now);
  world.aheadMs += HOUR_MS;
  t.same(await sweepAt(65_000), [null, null], 'as after an outage');
  t.same(await sweepAt(95_000), [30_000, null]);
  t.same(await sweepAt(125_000), [30_000, HOUR_MS + 60_000]);
  world.aheadMs -= HOUR_MS;
  t.same(await sweepAt(130_000), [30_000, HOUR_MS + 60_000], 'one that is set back takes nothing from anybody');
  t.same(await sweepAt(24 * HOUR_MS), [30_000, HOUR_MS + 60_000]);
  t.same(await sweepAt(24 * HOUR_MS + 130_000), [30_000, 60_000], 'what ran then is over');
  t.same([...new Set(world.claimed)], [60_000, HOUR_MS + 60_000], 'and so are those told that no report comes of');
  world.claimed = [];
  dispatcher.hint('s');
  await until(() => world.claimed.length > 0, 'the claim');
  t.same(world.claimed, [null], 'between two polls nobody knows');
  world.aheadMs += 48 * HOUR_MS;
  for (const now of [25 * HOUR_MS, 26 * HOUR_MS]) await sweepAt(now);
  t.same(world.swept, [30_000, null], 'by more than tasks take');
});
