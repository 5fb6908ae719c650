/** Which instance sheds agents, how many, to which instance, and when none does. */
import t from 'tap';
import type { InstanceRow } from '../../../../lib/control/roster/membership/instance-store.ts';
import { decideSurplus, type InstanceAgents } from '../../../../lib/control/roster/relocation/balance.ts';
import { Balancer } from '../../../../lib/control/roster/relocation/balancer.ts';
import { SessionTable } from '../../../../lib/control/roster/sessions/session.ts';
import { silentLogger } from '../../../../lib/platform/log.ts';
import { HealthyTimer } from '../../../../lib/platform/time/healthy-timer.ts';
import { idleSocket } from '../../../support/idle-socket.ts';
import { ManualClock } from '../../../support/manual-clock.ts';

const loads = (...agents: number[]): InstanceAgents[] =>
  agents.map((count, index) => ({ run: 'abcdef'[index] as string, agents: count }));

const table: { name: string; run?: string; loads: InstanceAgents[]; sheds?: { agents: number; to: string } }[] = [
  { name: 'a single instance sheds nothing', loads: loads(1000) },
  { name: 'an instance that is not among the live ones sheds nothing', run: 'f', loads: loads(1000, 0) },
  { name: 'an instance within a tenth and ten agents of the mean sheds nothing', loads: loads(115, 95, 90) },
  {
    name: 'the most loaded instance sheds one percent per second to the least loaded',
    loads: loads(6000, 5000, 100),
    sheds: { agents: 60, to: 'c' },
  },
  { name: 'an instance other than the most loaded waits', run: 'b', loads: loads(6000, 5000, 100) },
  {
    name: 'of equally loaded instances the first run sheds',
    loads: loads(5000, 5000, 0),
    sheds: { agents: 50, to: 'c' },
  },
  { name: 'of equally loaded instances the second run waits', run: 'b', loads: loads(5000, 5000, 0) },
  {
    name: 'of equally empty instances the first receives',
    loads: loads(6000, 100, 100),
    sheds: { agents: 60, to: 'b' },
  },
  { name: 'an instance sheds no more than its surplus', loads: loads(1113, 1000, 889), sheds: { agents: 2, to: 'c' } },
  { name: 'a small instance sheds agents one by one', loads: loads(40, 0), sheds: { agents: 1, to: 'b' } },
  {
    name: 'two new instances beside three with seven agents each receive some',
    loads: loads(7, 7, 7, 0, 0),
    sheds: { agents: 1, to: 'd' },
  },
  { name: 'a few evenly spread agents stay', loads: loads(5, 4, 4, 4, 4) },
  { name: 'a single agent stays', loads: loads(1, 0) },
];
for (const { name, run = 'a', loads, sheds } of table) {
  const surplus = decideSurplus(run, loads);
  t.same(surplus && { agents: surplus.agents, to: surplus.to.run }, sheds, name);
}

t.test('balancing a small zone ends near the mean', async (t) => {
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
        const surplus = decideSurplus(load.run, loads(...counts));
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
    t.ok(moves < 100, `${start}: balancing ends`);
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
    const socket = idleSocket({ askToLeave });
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
  const instances = {
    run: 'a',
    unhealthyReason: undefined as string | undefined,
    live: [row('a', agents)],
    leaseAgeMs,
  };
  const balancer = new Balancer({
    sessions,
    healthyTimer,
    membership: instances,
    balanceQuietMs: 30_000,
    leaseMs: 5_000,
    clock,
    log: silentLogger,
  });
  healthyTimer.start();
  t.teardown(() => healthyTimer.stop());
  return { clock, instances, ages, asked, hints, balancer, row };
}

t.test('30 s after an instance joins, some agents are asked each second to move to it', async (t) => {
  const { clock, instances, asked, hints, row } = balanced(1000);
  await clock.advance(60_000);
  instances.live = [...instances.live, row('b', 0)];
  await clock.advance(29_000);
  t.same(asked, []);
  await clock.advance(2_000);
  t.equal(asked.length, 10, 'in the first second after the pause');
  await clock.advance(3_000);
  t.ok(asked.length >= 20 && asked.length <= 60, `${asked.length} agents were asked`);
  t.equal(new Set(asked).size, asked.length, 'no agent is asked twice in a minute');
  t.match(hints[0], { uuid: 'uuid of b', host: 'b' });
});

t.test('no agent is sent to an instance that may be dead', async (t) => {
  const { clock, instances, ages, asked, row } = balanced(1000);
  instances.live = [...instances.live, row('b', 0)];
  ages.b = 2_500;
  await clock.advance(60_000);
  t.same(asked, []);
  ages.b = 2_000;
  await clock.advance(2_000);
  t.not(asked.length, 0);
});

t.test('while an instance drains or this one is unhealthy, no agent is asked and the pause restarts', async (t) => {
  const { clock, instances, asked, row } = balanced(1000);
  instances.live = [...instances.live, { ...row('b', 0), isDraining: true }, row('c', 0)];
  await clock.advance(90_000);
  t.same(asked, []);
  instances.live = instances.live.map((one) => ({ ...one, isDraining: false }));
  await clock.advance(20_000);
  instances.unhealthyReason = 'the database does not answer';
  await clock.advance(2_000);
  instances.unhealthyReason = undefined;
  await clock.advance(29_000);
  t.same(asked, []);
  await clock.advance(3_000);
  t.not(asked.length, 0);
});
