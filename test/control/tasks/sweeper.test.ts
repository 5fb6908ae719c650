/** What an instance does in each slow poll of tasks, on a database that the test controls. */
import t, { type Test } from 'tap';
import { SessionDispatch } from '../../../lib/control/tasks/dispatch/session-dispatch.ts';
import type { ChangedTask } from '../../../lib/control/tasks/store/change-result.ts';
import { Sweeper } from '../../../lib/control/tasks/sweeper.ts';
import { DatabaseBusyError, DatabaseUnavailableError } from '../../../lib/platform/errors.ts';
import type { Database } from '../../../lib/platform/postgres/database.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import { recordingLogger } from '../../support/recording-logger.ts';

const SLOW_POLL_MS = 5_000;

function setUp(t: Test) {
  const clock = new ManualClock();
  const logged: Record<string, unknown>[] = [];
  const changed: ChangedTask[][] = [];
  const world = {
    tick: 7,
    failure: undefined as Error | undefined,
    noteFailure: undefined as Error | undefined,
    /**
     * The arguments of each sweep: after how many ticks queued and claimed tasks are late, and room
     * for posts.
     */
    sweeps: [] as unknown[][],
    swept: [] as string[][],
    noted: [] as string[][],
    unclaimed: [] as string[],
    postPolls: 0,
    hasRoom: true,
  };
  const query = async (text: string, values: unknown[]): Promise<{ rows: unknown[] }> => {
    if (world.failure !== undefined) throw world.failure;
    if (text.includes('cnapi_advance_ticks')) {
      const [seen, by] = values as [number | null, number];
      if (seen === world.tick) world.tick += by;
      return { rows: [{ tick: world.tick }] };
    }
    if (text.includes('cnapi_record_full_servers')) {
      if (world.noteFailure !== undefined) throw world.noteFailure;
      world.noted.push(values[0] as string[]);
    }
    if (!text.includes('cnapi_sweep_late_tasks')) return { rows: [] };
    world.sweeps.push([values[0], values[1], values[11]]);
    return { rows: (world.swept.shift() ?? []).map((id) => ({ id })) };
  };
  const ports = {
    database: { query } as unknown as Database,
    clock,
    log: recordingLogger(logged),
    config: { slowPollMs: SLOW_POLL_MS, taskStartByMs: 30_000, taskResendMs: 5_000, taskOverdueMs: 60_000 },
  };
  const sessionDispatch = new SessionDispatch({
    ...ports,
    sessions: { run: () => 'run', get: () => undefined, isFull: false },
    fail: () => undefined,
  });
  const sweeper = new Sweeper({
    ...ports,
    sessionDispatch,
    postDispatch: {
      get hasRoom() {
        return world.hasRoom;
      },
      poll: () => {
        world.postPolls += 1;
      },
      endClaimPeriod: () => world.unclaimed,
    },
    onChanged: (tasks) => changed.push([...tasks]),
  });
  t.teardown(() => sessionDispatch.stop());
  /** Polls until this much time has passed. */
  const pollFor = async (ms: number) => {
    for (let passed = 0; passed < ms; passed += SLOW_POLL_MS) {
      await clock.advance(SLOW_POLL_MS);
      await sweeper.poll();
    }
  };
  return { changed, clock, pollFor, sweeper, world };
}

t.test('each poll advances the time of the zone and has the servers without a session served', async (t) => {
  const { sweeper, pollFor, world } = setUp(t);
  await sweeper.poll();
  t.equal(world.tick, 7);
  await pollFor(10_000);
  t.equal(world.tick, 17);
  t.equal(world.postPolls, 3);
});

t.test('tasks are swept once the database has answered for as long as they may wait', async (t) => {
  const { sweeper, pollFor, world } = setUp(t);
  await sweeper.poll();
  await pollFor(25_000);
  t.same(world.sweeps.at(-1), [null, null, true]);
  await pollFor(5_000);
  t.same(world.sweeps.at(-1), [45, null, true], 'the deadline contains what the counter may lag');
  world.hasRoom = false;
  await pollFor(30_000);
  t.same(world.sweeps.at(-1), [45, 60, false]);
  world.failure = new DatabaseBusyError('slow');
  await t.rejects(pollFor(5_000), DatabaseBusyError);
  world.failure = undefined;
  await pollFor(5_000);
  t.same(world.sweeps.at(-1), [45, 60, false], 'one slow statement stops no deadline');
});

t.test('after an outage waiting tasks get their whole time again, and it does not count in the zone', async (t) => {
  const { clock, sweeper, pollFor, world } = setUp(t);
  await sweeper.poll();
  await pollFor(60_000);
  const { tick } = world;
  world.failure = new DatabaseUnavailableError();
  await clock.advance(2_000);
  await t.rejects(sweeper.poll(), DatabaseUnavailableError);
  world.failure = undefined;
  await clock.advance(3_000);
  await sweeper.poll();
  t.same([world.tick, world.sweeps.at(-1)], [tick, [null, null, true]]);
  await pollFor(30_000);
  t.same([world.tick, world.sweeps.at(-1)], [tick + 30, [45, null, true]]);
});

t.test('swept tasks are counted and announced, in a bounded number of batches', async (t) => {
  const { changed, sweeper, world } = setUp(t);
  world.swept = [['x', 'y'], ['z']];
  await sweeper.poll();
  t.equal(world.sweeps.length, 3, 'until nothing is left');
  t.equal(sweeper.swept, 3);
  t.same(changed, [
    [
      { id: 'x', ended: true },
      { id: 'y', ended: true },
    ],
    [{ id: 'z', ended: true }],
  ]);
  world.swept = Array.from({ length: 30 }, () => ['w']);
  await sweeper.poll();
  t.equal(world.sweeps.length, 3 + 20);
});

t.test('servers whose claims are not answered get the whole time to start again', async (t) => {
  const { sweeper, world } = setUp(t);
  await sweeper.poll();
  t.same(world.noted, []);
  world.unclaimed = Array.from({ length: 2_001 }, (_, n) => `server ${n}`);
  await sweeper.poll();
  t.same(
    world.noted.map(({ length }) => length),
    [2_000, 1],
  );
});

t.test('while that cannot be stored, no queued task ends, and claimed ones do', async (t) => {
  const { sweeper, pollFor, world } = setUp(t);
  await sweeper.poll();
  await pollFor(60_000);
  world.unclaimed = ['a'];
  world.noteFailure = new DatabaseBusyError('locked');
  await t.rejects(sweeper.poll(), DatabaseBusyError);
  t.same(world.sweeps.at(-1), [null, 60, true]);
});
