/**
 * One instance among others: it ends their runs when their leases lapse, drains when told, and ends
 * its own run.
 */
import t from 'tap';
import type { DrainResult } from '../../../../lib/control/roster/membership/instance-store.ts';
import { Membership } from '../../../../lib/control/roster/membership/membership.ts';
import { DatabaseUnavailableError } from '../../../../lib/platform/errors.ts';
import type { Queryable } from '../../../../lib/platform/postgres/database.ts';
import { systemRandom } from '../../../../lib/platform/random.ts';
import { HealthyTimer } from '../../../../lib/platform/time/healthy-timer.ts';
import { ManualClock } from '../../../support/manual-clock.ts';
import { recordingLogger } from '../../../support/recording-logger.ts';

const times = { beatMs: 1_000, leaseMs: 5_000, silenceMs: 2_000, startGraceMs: 18_000 };

async function startInstance() {
  const clock = new ManualClock();
  const healthyTimer = new HealthyTimer({ clock, checkMs: 250 });
  const logged: Record<string, unknown>[] = [];
  const world = {
    /** Beats of the other live runs. */
    beats: new Map<string, number>(),
    /** What a declaration leaves alone: the run's row is locked, or its beat has moved. */
    kept: new Set<string>(),
    isOwnRunDead: false,
    isRowDraining: false,
    wasAsked: false,
    drainAnswer: 'draining' as DrainResult,
    drains: [] as string[],
    ended: [] as string[],
    endFails: false,
    heard: [] as string[],
  };
  const answer = (text: string, values: readonly unknown[]): object[] => {
    const run = values[0] as string;
    if (text.includes('insert into cnapi_instances')) {
      world.isOwnRunDead = false;
      return [{ started_at: new Date(0) }];
    }
    if (text.includes('beat = beat + 1')) return world.isOwnRunDead ? [] : [{ is_draining: world.isRowDraining }];
    if (text.includes("end_reason = 'lapsed'")) {
      const dead = (values[0] as string[]).filter((one) => !world.kept.has(one));
      for (const one of dead) world.beats.delete(one);
      return dead.map((one) => ({ run: one }));
    }
    if (text.includes("end_reason = 'stopped'")) {
      if (world.endFails) throw new DatabaseUnavailableError();
      world.ended.push(run);
      return [];
    }
    if (text.includes('cnapi_drain')) {
      world.drains.push(run);
      return [{ answer: world.drainAnswer }];
    }
    if (text.includes('and draining_since is not null')) return world.wasAsked ? [{}] : [];
    const row = { cnapi_uuid: 'u', url: '', host: '', port: 1, pid: 1, version: '0', state: 'live', agents: 0 };
    return [...world.beats].map(([other, beat]) => ({
      ...row,
      run: other,
      beat,
      admission: 'open',
      is_draining: false,
    }));
  };
  const query = async <Row>(text: string, values: readonly unknown[] = []) => {
    const rows = answer(text, values) as Row[];
    return { rows, rowCount: rows.length };
  };
  const membership = new Membership({
    database: { query } as Queryable,
    cnapiUuid: 'me',
    identity: () => ({ cnapiUuid: 'me', url: '', host: '', port: 1, pid: 1, version: '0' }),
    healthyTimer,
    clock,
    random: systemRandom,
    log: recordingLogger(logged),
    times,
    countAgents: () => 0,
    admission: () => 'open',
    latestReturnInMs: () => undefined,
  });
  membership.listen({
    onRunsEnded: (runs) => world.heard.push(`ended ${runs.join()}`),
    onDrainRequested: () => world.heard.push('drain'),
    onRunRenewed: () => world.heard.push('renewed'),
  });
  healthyTimer.start();
  await membership.start(new AbortController().signal);
  return { clock, logged, membership, world };
}

t.test('a run whose beat stands still is declared dead after its lease, and nobody else is', async (t) => {
  const { clock, membership, world } = await startInstance();
  world.beats.set('still', 1).set('alive', 1);
  for (let beat = 2; beat < 6; beat += 1) {
    await clock.advance(1_000);
    world.beats.set('alive', beat);
  }
  t.same(world.heard, []);
  t.ok(membership.leaseAgeMs('still') > membership.leaseAgeMs('alive'));
  t.equal(membership.leaseAgeMs('unknown'), 0);
  for (let beat = 6; beat < 10; beat += 1) {
    await clock.advance(1_000);
    world.beats.set('alive', beat);
  }
  t.same(world.heard, ['ended still'], 'once');
  t.same(
    membership.live.map(({ run }) => run),
    ['alive'],
  );
  await membership.stop();
});

t.test('a run that could not be declared dead counts as live and is tried again', async (t) => {
  const { clock, membership, world } = await startInstance();
  world.beats.set('still', 1);
  world.kept.add('still');
  await clock.advance(10_000);
  t.same(world.heard, []);
  t.equal(membership.live.length, 1);
  world.kept.clear();
  await clock.advance(10_000);
  t.same(world.heard, ['ended still']);
  t.equal(membership.live.length, 0);
  await membership.stop();
});

t.test('a run that another instance ended is reported once', async (t) => {
  const { clock, membership, world } = await startInstance();
  world.beats.set('other', 1);
  await clock.advance(1_000);
  world.beats.delete('other');
  await clock.advance(3_000);
  t.same(world.heard, ['ended other']);
  await membership.stop();
});

t.test('an instance whose row says so drains, once', async (t) => {
  const { clock, membership, world } = await startInstance();
  world.isRowDraining = true;
  await clock.advance(3_000);
  t.same([world.heard, world.drains], [['drain'], []]);
  await membership.stop();
});

t.test(
  'a drain that this instance announced is not requested of it, and is announced again for a new run',
  async (t) => {
    const { clock, membership, world } = await startInstance();
    world.drainAnswer = 'last';
    t.equal(await membership.announceDrain(), 'last');
    await clock.advance(2_000);
    t.equal(world.drains.length, 1, 'the last instance does not drain');
    world.drainAnswer = 'draining';
    t.equal(await membership.announceDrain(), 'draining');
    world.isRowDraining = true;
    await clock.advance(2_000);
    t.same(world.heard, []);
    world.isRowDraining = false;
    world.isOwnRunDead = true;
    await clock.advance(2_000);
    t.same(world.heard, ['renewed']);
    t.equal(world.drains.at(-1), membership.run);
    await membership.stop();
  },
);

t.test('a drain that was asked of a dead run is carried out by the next one', async (t) => {
  const { clock, membership, world } = await startInstance();
  world.wasAsked = true;
  world.isOwnRunDead = true;
  world.drainAnswer = 'gone';
  await clock.advance(2_000);
  t.same(world.heard, ['renewed']);
  const tries = world.drains.length;
  t.ok(tries > 0);
  await clock.advance(1_000);
  t.ok(world.drains.length > tries, 'the new run died as well: it is tried again');
  world.drainAnswer = 'draining';
  await clock.advance(3_000);
  t.same(world.heard, ['renewed', 'drain']);
  await membership.stop();
});

t.test('the last instance stays although its dead run was asked to drain', async (t) => {
  const { clock, logged, membership, world } = await startInstance();
  Object.assign(world, { wasAsked: true, isOwnRunDead: true, drainAnswer: 'last' });
  await clock.advance(5_000);
  t.same([world.heard, world.drains.length], [['renewed'], 1]);
  t.ok(logged.some(({ msg }) => String(msg).includes('stays because it is the last')));
  await membership.stop();
});

t.test('a stop ends the run, once', async (t) => {
  const { clock, membership, world } = await startInstance();
  const { run } = membership;
  await membership.stop();
  await membership.stop();
  t.same(world.ended, [run]);
  await clock.advance(5_000);
  t.equal(clock.timers, 1, 'only the tick of the healthy timer is left');
});

t.test('a run that cannot be ended now is left to its lease', async (t) => {
  const { logged, membership, world } = await startInstance();
  world.endFails = true;
  await membership.stop();
  t.ok(logged.some(({ level, run }) => level === 'warn' && run === membership.run));
});
