/** Who sheds agents, how many, to whom, and when nobody does. */
import t from 'tap';
import { type Load, surplusOf } from '../../../lib/control/roster/balance.ts';
import { Balancer } from '../../../lib/control/roster/balancer.ts';
import { HealthyTimer } from '../../../lib/control/roster/healthy-timer.ts';
import type { InstanceRow } from '../../../lib/control/roster/instance-store.ts';
import { SessionTable } from '../../../lib/control/roster/session.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import { ManualClock } from '../../support/manual-clock.ts';

const loads = (...agents: number[]): Load[] =>
  agents.map((count, index) => ({ run: 'abcdef'[index] as string, agents: count }));

const table: { name: string; run?: string; loads: Load[]; sheds?: { agents: number; to: string } }[] = [
  { name: 'alone, nobody sheds', loads: loads(1000) },
  { name: 'one that is not among the live ones sheds nothing', run: 'f', loads: loads(1000, 0) },
  { name: 'within a tenth and ten of the mean nobody sheds', loads: loads(115, 95, 90) },
  {
    name: 'the most loaded sheds one in a hundred a second, to the least loaded',
    loads: loads(6000, 5000, 100),
    sheds: { agents: 60, to: 'c' },
  },
  { name: 'another than the most loaded waits', run: 'b', loads: loads(6000, 5000, 100) },
  { name: 'of equals the first run sheds', loads: loads(5000, 5000, 0), sheds: { agents: 50, to: 'c' } },
  { name: 'of equals the second run waits', run: 'b', loads: loads(5000, 5000, 0) },
  { name: 'of equally loaded ones the first receives', loads: loads(6000, 100, 100), sheds: { agents: 60, to: 'b' } },
  { name: 'no more than the surplus', loads: loads(1113, 1000, 889), sheds: { agents: 2, to: 'c' } },
  { name: 'a small one sheds one by one', loads: loads(40, 0), sheds: { agents: 1, to: 'b' } },
  {
    name: 'two instances that come to three with seven each receive agents',
    loads: loads(7, 7, 7, 0, 0),
    sheds: { agents: 1, to: 'd' },
  },
  { name: 'few agents that are even stay', loads: loads(5, 4, 4, 4, 4) },
  { name: 'one agent stays where it is', loads: loads(1, 0) },
];
for (const { name, run = 'a', loads, sheds } of table) {
  const surplus = surplusOf(run, loads);
  t.same(surplus && { agents: surplus.agents, to: surplus.to.run }, sheds, name);
}

t.test('a small zone comes to rest, and near its mean', async (t) => {
  for (const start of [
    [7, 7, 7, 0, 0],
    [21, 0, 0],
    [3, 0],
    [60, 1, 1, 1],
    [9, 8, 0, 0, 0, 0],
  ]) {
    const counts = [...start];
    let moves = 0;
    for (let isMoving = true; isMoving; ) {
      isMoving = false;
      for (const [index, load] of loads(...counts).entries()) {
        const surplus = surplusOf(load.run, loads(...counts));
        if (surplus === undefined) continue;
        counts[index] = (counts[index] ?? 0) - surplus.agents;
        const to = 'abcdef'.indexOf(surplus.to.run);
        counts[to] = (counts[to] ?? 0) + surplus.agents;
        moves += surplus.agents;
        isMoving = true;
      }
      if (moves > 100) break;
    }
    const mean = start.reduce((sum, each) => sum + each, 0) / start.length;
    t.ok(moves < 100, `${start}: it comes to rest`);
    t.ok(Math.max(...counts) <= Math.ceil(mean * 1.2), `${start}: ${counts}`);
  }
});

function balanced(agents: number) {
  const clock = new ManualClock();
  const healthyTimer = new HealthyTimer({ clock, checkMs: 250 });
  const sessions = new SessionTable();
  const asked: string[] = [];
  const hints: object[] = [];
  for (let each = 0; each < agents; each++) {
    const serverUuid = `server-${each}`;
    const askToLeave = (_why: string, addresses: object[], withinMs?: number) => {
      t.equal(withinMs, undefined, 'softly');
      asked.push(serverUuid);
      hints.push(...addresses);
    };
    const socket = {
      isUnread: false,
      send: () => true,
      probe() {},
      answersProbe: async () => true,
      askToLeave,
      terminate() {},
    };
    const fields = {
      serverUuid,
      epoch: 1,
      incarnation: 'i',
      journalId: 'j',
      capabilities: new Set<string>(),
      run: 'a',
      heardAt: 0,
    };
    const added = sessions.add({ ...fields, socket });
    if (added) added.session.isInventoried = true;
  }
  const row = (run: string, count: number): InstanceRow => ({
    ...{ run, cnapiUuid: `uuid of ${run}`, url: '', host: run, port: 1, pid: 1, version: '0', state: 'live', beat: 1 },
    ...{ isDraining: false, agents: count, admission: 'open', startedAt: new Date(0) },
  });
  const ages: Record<string, number> = {};
  const leaseAgeMs = (run: string) => ages[run] ?? 0;
  const instances = { run: 'a', trouble: undefined as string | undefined, live: [row('a', agents)], leaseAgeMs };
  const balancer = new Balancer({
    sessions,
    healthyTimer,
    instances,
    balanceQuietMs: 30_000,
    leaseMs: 5_000,
    clock,
    log: silentLogger,
  });
  healthyTimer.start();
  t.teardown(() => healthyTimer.stop());
  return { clock, instances, ages, asked, hints, balancer, row };
}

t.test(
  'after an instance has come it is quiet for 30 s, then some are asked each second, to the one that came',
  async (t) => {
    const { clock, instances, asked, hints, row } = balanced(1000);
    await clock.advance(60_000);
    instances.live = [...instances.live, row('b', 0)];
    await clock.advance(29_000);
    t.same(asked, []);
    await clock.advance(5_000);
    t.ok(asked.length >= 20 && asked.length <= 60, `${asked.length} were asked`);
    t.equal(new Set(asked).size, asked.length, 'nobody is asked twice in a minute');
    t.match(hints[0], { uuid: 'uuid of b', host: 'b' });
  },
);

t.test('to an instance that may be dead nobody is sent', async (t) => {
  const { clock, instances, ages, asked, row } = balanced(1000);
  instances.live = [...instances.live, row('b', 0)];
  ages.b = 2_500;
  await clock.advance(60_000);
  t.same(asked, []);
  ages.b = 2_000;
  await clock.advance(2_000);
  t.not(asked.length, 0);
});

t.test('while an instance drains, or this one is unwell, nobody is asked, and the quiet begins anew', async (t) => {
  const { clock, instances, asked, row } = balanced(1000);
  instances.live = [...instances.live, { ...row('b', 0), isDraining: true }, row('c', 0)];
  await clock.advance(90_000);
  t.same(asked, []);
  instances.live = instances.live.map((one) => ({ ...one, isDraining: false }));
  await clock.advance(20_000);
  instances.trouble = 'the database does not answer';
  await clock.advance(2_000);
  instances.trouble = undefined;
  await clock.advance(29_000);
  t.same(asked, []);
  await clock.advance(3_000);
  t.not(asked.length, 0);
});
