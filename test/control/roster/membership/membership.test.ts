/** One instance among others, with a simulated database and clock. */
import t from 'tap';
import { Membership } from '../../../../lib/control/roster/membership/membership.ts';
import { DatabaseBusyError, DatabaseUnavailableError } from '../../../../lib/platform/errors.ts';
import { silentLogger } from '../../../../lib/platform/log.ts';
import type { Queryable } from '../../../../lib/platform/postgres/database.ts';
import { systemRandom } from '../../../../lib/platform/random.ts';
import { HealthyTimer } from '../../../../lib/platform/time/healthy-timer.ts';
import { ManualClock } from '../../../support/manual-clock.ts';

const times = { beatMs: 1000, leaseMs: 5000, silenceMs: 2000, startGraceMs: 18_000 };
const identity = () => ({
  cnapiUuid: 'me',
  url: 'http://127.0.0.1:1',
  host: '127.0.0.1',
  port: 1,
  pid: 1,
  version: '0',
});

function newInstance() {
  const clock = new ManualClock();
  const healthyTimer = new HealthyTimer({ clock, checkMs: 250 });
  const world = {
    isDatabaseAway: false,
    isRowLocked: false,
    isDead: false,
    reads: 0,
    beats: 0,
    said: [] as string[],
    others: [] as { run: string; beat: number }[],
    declared: [] as string[],
    /** The answers to so many inserts of a run are lost. */
    lostAnswers: 0,
    inserted: [] as unknown[],
    /** Runs that were declared dead after their row was inserted. */
    lapsed: new Set<unknown>(),
    ended: [] as unknown[],
    latestReturnInMs: undefined as number | undefined,
    reported: [] as unknown[],
  };
  const query: Queryable['query'] = async <Row>(text: string, values?: readonly unknown[]) => {
    if (world.isDatabaseAway) throw new DatabaseUnavailableError();
    if (text.includes('beat = beat + 1') && world.isRowLocked) throw new DatabaseBusyError('locked');
    if (text.includes('from cnapi_instances where')) world.reads += 1;
    if (text.includes('from cnapi_instances where')) return { rows: world.others as Row[], rowCount: 0 };
    if (text.includes("end_reason = 'lapsed'")) world.declared.push(...world.others.map(({ run }) => run));
    if (text.includes('insert into cnapi_instances')) {
      world.inserted.push(values?.[0]);
      world.lostAnswers -= 1;
      if (world.lostAnswers >= 0) throw new DatabaseUnavailableError();
      if (world.lapsed.has(values?.[0])) return { rows: [], rowCount: 0 };
      world.isDead = false;
    }
    if (text.includes("end_reason = 'stopped'")) world.ended.push(values);
    if (text.includes('beat = beat + 1')) world.reported.push(values?.[3]);
    if (!text.includes('beat = beat + 1')) return { rows: [{ started_at: new Date() }] as Row[], rowCount: 1 };
    world.beats += 1;
    return world.isDead ? { rows: [], rowCount: 0 } : { rows: [{ is_draining: false }] as Row[], rowCount: 1 };
  };
  const database: Queryable = { query };
  const instances = new Membership({
    database,
    cnapiUuid: 'me',
    identity,
    healthyTimer,
    clock,
    random: systemRandom,
    log: silentLogger,
    times,
    countAgents: () => 0,
    admission: () => 'open',
    latestReturnInMs: () => world.latestReturnInMs,
  });
  instances.listen({
    onUnhealthy: (reason) => world.said.push(reason),
    onRecovered: () => world.said.push('recovered'),
    onRunRenewed: () => world.said.push('renewed'),
  });
  healthyTimer.start();
  return { clock, instances, world, signal: new AbortController() };
}

t.test('the start grace begins when the instance can accept agents, not while it waits for its database', async (t) => {
  const { clock, instances, world, signal } = newInstance();
  world.isDatabaseAway = true;
  const started = instances.start(signal.signal);
  await clock.advance(60_000);
  world.isDatabaseAway = false;
  await clock.advance(1000);
  await started;
  t.equal(instances.mayMarkOthersUnknown, false);
  await clock.advance(17_000);
  t.equal(instances.mayMarkOthersUnknown, false);
  await clock.advance(2000);
  t.equal(instances.mayMarkOthersUnknown, true);
});

t.test('a cancelled start ends although the database never answered', async (t) => {
  const { clock, instances, world, signal } = newInstance();
  world.isDatabaseAway = true;
  const started = instances.start(signal.signal);
  await clock.advance(3000);
  signal.abort();
  await t.resolves(started);
});

t.test('a stall restarts the grace', async (t) => {
  const { clock, instances, world, signal } = newInstance();
  await instances.start(signal.signal);
  await clock.advance(30_000);
  t.equal(instances.mayMarkOthersUnknown, true);
  await clock.stall(times.silenceMs + 1_000);
  t.equal(instances.mayMarkOthersUnknown, false, 'agents of other instances may have come and gone meanwhile');
  t.equal(instances.unhealthyReason, undefined, 'one stall does not make the instance unhealthy');
  await clock.advance(times.startGraceMs - 1_000);
  t.equal(instances.mayMarkOthersUnknown, false);
  await clock.advance(2_000);
  t.equal(instances.mayMarkOthersUnknown, true);
  t.same(world.said, []);
});

t.test('two failed beats make an instance unhealthy; one success heals it and restarts the grace', async (t) => {
  const { clock, instances, world, signal } = newInstance();
  await instances.start(signal.signal);
  await clock.advance(30_000);
  t.equal(instances.mayMarkOthersUnknown, true);
  world.isDatabaseAway = true;
  await clock.advance(1000);
  t.equal(instances.unhealthyReason, undefined, 'one failed beat is tolerated');
  await clock.advance(1000);
  t.equal(instances.unhealthyReason, 'the database does not answer');
  world.isDatabaseAway = false;
  await clock.advance(1000);
  t.same(world.said, ['the database does not answer', 'recovered']);
  t.equal(instances.mayMarkOthersUnknown, false);
});

t.test('a beat that waits for its locked row does not make an instance unhealthy', async (t) => {
  const { clock, instances, world, signal } = newInstance();
  await instances.start(signal.signal);
  await clock.advance(30_000);
  world.isRowLocked = true;
  const { beats, reads } = world;
  await clock.advance(10_000);
  t.equal(world.beats, beats, 'no beat was incremented');
  t.ok(world.reads >= reads + 9, 'the other instances were still read');
  t.equal(instances.unhealthyReason, undefined);
  t.equal(instances.mayMarkOthersUnknown, true);
  t.same(world.said, []);
});

t.test('an instance whose run was found dead starts a new one, with a grace before any status change', async (t) => {
  const { clock, instances, world, signal } = newInstance();
  await instances.start(signal.signal);
  await clock.advance(30_000);
  const { run } = instances;
  world.isDead = true;
  await clock.advance(1000);
  t.not(instances.run, run);
  t.same(world.said, ['renewed']);
  t.equal(instances.mayMarkOthersUnknown, false);
});

t.test('an instance whose new run may have been stored tries again with the same one', async (t) => {
  const { clock, instances, world, signal } = newInstance();
  await instances.start(signal.signal);
  await clock.advance(30_000);
  world.isDead = true;
  world.lostAnswers = 3;
  await clock.advance(5_000);
  const [first, ...renewed] = world.inserted;
  t.not(instances.run, first);
  t.same(renewed, Array(4).fill(instances.run), 'a second row would be another live run of this instance');
});

t.test('a new run that was declared dead before its insert was answered is not used', async (t) => {
  const { clock, instances, world, signal } = newInstance();
  await instances.start(signal.signal);
  world.isDead = true;
  world.lostAnswers = 1;
  await clock.advance(1_000);
  const lapsed = world.inserted.at(-1);
  world.lapsed.add(lapsed);
  await clock.advance(1_000);
  t.equal(instances.run, world.inserted.at(-1));
  t.not(instances.run, lapsed);
  t.same(world.said, ['renewed'], 'once');
});

t.test('a start whose run was declared dead before its insert was answered takes another id', async (t) => {
  const { clock, instances, world, signal } = newInstance();
  world.lapsed.add(instances.run);
  world.lostAnswers = 1;
  const { run: first } = instances;
  const started = instances.start(signal.signal);
  await clock.advance(0);
  await clock.advance(1_000);
  await started;
  t.same(world.inserted, [first, first, instances.run]);
  t.not(instances.run, first);
});

t.test('a stop between the insert and the first read ends the run, and nothing goes on', async (t) => {
  const { clock, instances, world, signal } = newInstance();
  const started = instances.start(signal.signal);
  t.equal(world.inserted.length, 1, 'the insert is on its way');
  await instances.stop();
  await started;
  t.same(
    world.ended.map((values) => (values as unknown[])[0]),
    world.inserted,
  );
  await clock.advance(5 * times.beatMs);
  t.same([world.beats, world.reads], [0, 0]);
});

t.test('a stop ends the new run whose insert was not answered', async (t) => {
  const { clock, instances, world, signal } = newInstance();
  await instances.start(signal.signal);
  world.isDead = true;
  world.lostAnswers = Number.POSITIVE_INFINITY;
  await clock.advance(3_000);
  await instances.stop();
  t.same(
    world.ended.map((values) => (values as unknown[])[0]),
    [world.inserted.at(-1)],
    'its row may be there, and would count as live until its lease lapses',
  );
});

t.test('each beat and the end record the last time at which an agent was told to return', async (t) => {
  const { clock, instances, world, signal } = newInstance();
  await instances.start(signal.signal);
  await clock.advance(2_000);
  t.same([...new Set(world.reported)], [null], 'no agent was told');
  world.latestReturnInMs = 30_000;
  await clock.advance(1_000);
  t.equal(world.reported.at(-1), 30_000);
  world.latestReturnInMs = 40_000;
  await instances.stop();
  t.same(world.ended, [[instances.run, 40_000]]);
});

t.test('an instance that cannot keep up reports it and lets its lease lapse; one long stall does not', async (t) => {
  const { clock, instances, world, signal } = newInstance();
  await instances.start(signal.signal);
  await clock.stall(20_000);
  await clock.advance(2000);
  t.same(world.said, [], 'it changes no status for a while, and continues');
  for (let second = 0; second < 9; second += 1) await clock.stall(1000);
  t.same(world.said, ['this process cannot keep up with its work']);
  const { beats } = world;
  for (let second = 0; second < 5; second += 1) await clock.stall(1000);
  t.equal(world.beats, beats, 'no beat while it is unhealthy');
  await clock.advance(2000);
  t.same(world.said, ['this process cannot keep up with its work', 'recovered']);
  t.ok(world.beats > beats);
});

const interruptions = {
  'a beat that failed': async ({ clock, world }: ReturnType<typeof newInstance>) => {
    world.isDatabaseAway = true;
    await clock.advance(1_000);
    world.isDatabaseAway = false;
  },
  'a time in which it could not keep up': async ({ clock }: ReturnType<typeof newInstance>) => {
    for (let second = 0; second < 12; second += 1) await clock.stall(1_000);
  },
};
for (const [name, interrupt] of Object.entries(interruptions))
  t.test(`what an instance saw of another before ${name} does not count against the other's lease`, async (t) => {
    const instance = newInstance();
    const { clock, instances, world, signal } = instance;
    world.others.push({ run: 'other', beat: 7 });
    await instances.start(signal.signal);
    await clock.advance(times.leaseMs - 1_500);
    await interrupt(instance);
    await clock.advance(times.leaseMs - 1_000);
    t.same(world.declared, []);
    await clock.advance(3_000);
    t.ok(world.declared.includes('other'), 'it lapses after a whole lease');
  });
