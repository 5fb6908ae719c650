import t, { type Test } from 'tap';
import type { ServerBoot } from '../../../lib/control/servers/server-store.ts';
import { type StepCondition, StepWaits } from '../../../lib/control/workflows/step-waits.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import type { Queryable } from '../../../lib/platform/postgres/database.ts';
import { ManualClock } from '../../support/manual-clock.ts';

const POLL_MS = 2_000;
const TIMEOUT_MS = 60_000;
const task = (id: string): StepCondition => ({ kind: 'task', taskId: id });
const idle = (serverUuid: string): StepCondition => ({ kind: 'idle', serverUuid, timeoutMs: TIMEOUT_MS });
const boot = (serverUuid: string): StepCondition => ({
  kind: 'boot',
  serverUuid,
  lastBoot: 'before',
  timeoutMs: TIMEOUT_MS,
});

function setUp(t: Test) {
  const clock = new ManualClock();
  const jobs = new Map<string, { isCancelled: boolean; ticks: number }>();
  const ended = new Set<string>();
  const busy = new Set<string>();
  const boots = new Map<string, ServerBoot>();
  const tickets = new Map<string, 'active'>();
  const statements: number[] = [];
  const woken: string[] = [];
  const query = async (_text: string, [ids]: [string[]]) => {
    statements.push(ids.length);
    const rows = ids.flatMap((id) => {
      const job = jobs.get(id);
      return job === undefined ? [] : [{ id, is_cancelled: job.isCancelled, step_ticks: String(job.ticks) }];
    });
    return { rows };
  };
  const asked = <Answer>(ids: readonly string[], answer: Answer) => {
    if (ids.length > 0) statements.push(ids.length);
    return Promise.resolve(answer);
  };
  const waits = new StepWaits({
    database: { query } as unknown as Queryable,
    clock,
    log: silentLogger,
    tasks: {
      endedAmong: (ids) =>
        asked(
          ids,
          ids.filter((id) => ended.has(id)),
        ),
      busyAmong: (ids) => asked(ids, new Set(ids.filter((id) => busy.has(id)))),
    },
    servers: { boots: (ids) => asked(ids, boots) },
    waitlist: { statuses: (ids) => asked(ids, new Map(ids.map((id) => [id, tickets.get(id) ?? 'queued']))) },
  });
  waits.start();
  const stopping = new AbortController();
  t.teardown(async () => {
    stopping.abort();
    await waits.stop();
  });
  const sleep = (id: string, awaited: StepCondition | undefined) => {
    jobs.set(id, { isCancelled: false, ticks: 0 });
    const wait = waits.open(id);
    wait.awaited = awaited;
    void waits.sleep(wait, stopping.signal).then(() => {
      waits.close(id, wait);
      woken.push(id);
    });
  };
  return { clock, waits, jobs, ended, busy, boots, tickets, statements, woken, sleep };
}

const ticket = (uuid: string): StepCondition => ({ kind: 'ticket', ticket: uuid, timeoutMs: TIMEOUT_MS });

t.test('the end of a task wakes the job that waits for it and no other', async (t) => {
  const { clock, waits, busy, boots, woken, sleep } = setUp(t);
  sleep('one', task('a'));
  sleep('two', task('b'));
  sleep('drains', idle('s'));
  sleep('reboots', boot('r'));
  busy.add('s');
  boots.set('r', { isRunning: false, lastBoot: 'before' });
  waits.tasksEnded(['b', 'of somebody else']);
  await clock.advance(POLL_MS);
  t.same(woken, ['two']);
});

t.test('a round has the same number of statements for one job of a kind and for a hundred', async (t) => {
  const { clock, busy, boots, statements, sleep, woken } = setUp(t);
  for (let n = 0; n < 100; n += 1) {
    sleep(`task ${n}`, task(`t${n}`));
    sleep(`drain ${n}`, idle(`s${n}`));
    sleep(`boot ${n}`, boot(`s${n}`));
    sleep(`ticket ${n}`, ticket(`k${n}`));
    busy.add(`s${n}`);
    boots.set(`s${n}`, { isRunning: true, lastBoot: 'before' });
  }
  await clock.advance(POLL_MS);
  statements.length = 0;
  await clock.advance(POLL_MS);
  t.same(statements, [400, 100, 100, 100, 100]);
  t.same(woken, []);
});

t.test('nothing is read while no job waits', async (t) => {
  const { clock, statements, sleep, waits, woken } = setUp(t);
  sleep('one', task('a'));
  waits.tasksEnded(['a']);
  await clock.advance(2 * POLL_MS);
  t.same(woken, ['one']);
  statements.length = 0;
  await clock.advance(10 * POLL_MS);
  t.same(statements, []);
});

const ends: [what: string, awaited: StepCondition, change: (world: ReturnType<typeof setUp>) => void][] = [
  ['its task has ended, and nobody has said so', task('a'), ({ ended }) => ended.add('a')],
  ['its server has no unfinished task any more', idle('s'), ({ busy }) => busy.delete('s')],
  ['its server is back', boot('s'), ({ boots }) => boots.set('s', { isRunning: true, lastBoot: 'after' })],
  ['its server is removed', boot('s'), ({ boots }) => boots.delete('s')],
  ['its ticket waits no longer', ticket('k'), ({ tickets }) => tickets.set('k', 'active')],
  ['it was cancelled', task('a'), ({ jobs }) => jobs.set('job', { isCancelled: true, ticks: 0 })],
  ['its time is up', idle('s'), ({ jobs }) => jobs.set('job', { isCancelled: false, ticks: TIMEOUT_MS })],
  ['it was deleted', task('a'), ({ jobs }) => jobs.delete('job')],
];
for (const [what, awaited, change] of ends)
  t.test(`a job is woken when ${what}, and not before`, async (t) => {
    const world = setUp(t);
    world.busy.add('s');
    world.boots.set('s', { isRunning: true, lastBoot: 'before' });
    world.sleep('job', awaited);
    await world.clock.advance(3 * POLL_MS);
    t.same(world.woken, []);
    change(world);
    await world.clock.advance(POLL_MS);
    t.same(world.woken, ['job']);
  });

t.test('a server that is down has not booted, whatever its last sysinfo says', async (t) => {
  const { clock, boots, sleep, woken } = setUp(t);
  boots.set('s', { isRunning: false, lastBoot: 'after' });
  sleep('job', boot('s'));
  await clock.advance(3 * POLL_MS);
  t.same(woken, []);
});

t.test('a job that knows that it was cancelled waits for the end of its task', async (t) => {
  const { clock, jobs, waits, statements, woken, sleep } = setUp(t);
  sleep('job', task('a'));
  jobs.set('job', { isCancelled: true, ticks: 0 });
  await clock.advance(POLL_MS);
  t.same(woken, ['job']);
  const wait = waits.open('job');
  wait.awaited = task('a');
  wait.isCancelled = true;
  statements.length = 0;
  void waits.sleep(wait, new AbortController().signal).then(() => woken.push('again'));
  await clock.advance(3 * POLL_MS);
  t.ok(statements.length > 0);
  t.same(woken, ['job']);
  waits.wakeJobs(['job']);
  await clock.advance(0);
  t.same(woken, ['job', 'again']);
});
