/** When an instance may end what nobody takes or reports: only what had its time while the database answered. */
import t from 'tap';
import { DatabaseUnavailableError } from '../../lib/errors.ts';
import { silentLogger } from '../../lib/log.ts';
import { systemClock } from '../../lib/ports/clock.ts';
import { Dispatcher, type DispatcherDeps } from '../../lib/tasks/dispatcher.ts';

const config = { taskStartByMs: 30_000, taskResendMs: 5_000, taskOverdueMs: 60_000 };

t.test('an instance that could not read for a while gives what waited its time anew', async (t) => {
  const world = { isAway: false, now: 0, swept: [] as unknown[] };
  const query = async (text: string, values: unknown[] = []) => {
    if (world.isAway) throw new DatabaseUnavailableError();
    if (text.includes('cnapi_sweep_tasks')) world.swept = values.slice(0, 2);
    return { rows: [], rowCount: 0 };
  };
  const deps = {
    database: { query },
    bus: { publish: () => undefined },
    sessions: { run: () => '', get: () => undefined, all: () => [] },
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
  const never = 86_400_000;
  t.same(await sweepAt(0), [never, never], 'just started');
  t.same(await sweepAt(30_000), [30_000, never]);
  t.same(await sweepAt(60_000), [30_000, 60_000]);
  world.isAway = true;
  await sweepAt(65_000);
  world.isAway = false;
  t.same(await sweepAt(95_000), [never, never], 'the database has just come back');
  t.same(await sweepAt(125_000), [30_000, never]);
});
