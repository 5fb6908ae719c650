/**
 * Instances that have posted tasks to a legacy agent are killed and frozen: each task has one end,
 * and none is posted twice.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import t, { type Test } from 'tap';
import type { Task } from '../../lib/protocol/api/tasks.ts';
import { type FakeLegacyAgent, startFakeLegacyAgent } from '../support/fake-legacy-agent.ts';
import { type Instance, startZone, type Zone } from '../support/fleet-harness.ts';
import { matchLists } from '../support/match-lists.ts';
import { FILE_TIMEOUT_MS } from '../support/patience.ts';
import { noRedisServer } from '../support/redis.ts';
import { until } from '../support/until.ts';

async function post<Body>(url: string, body: object = {}): Promise<Body> {
  const headers = { 'content-type': 'application/json' };
  const response = await fetch(url, { method: 'POST', headers, body: JSON.stringify(body) });
  if (!response.ok) throw new Error(`${url}: ${response.status} ${await response.text()}`);
  return (response.status === 202 ? await response.json() : undefined) as Body;
}

/**
 * A legacy agent that posts its heartbeats to the instances in turn, as through a DNS name of all
 * of them.
 */
async function joinLegacyAgent(t: Test, zone: Zone): Promise<FakeLegacyAgent> {
  const agent = await startFakeLegacyAgent(t);
  const { serverUuid: UUID, port } = agent;
  const sysinfo = { UUID, Hostname: 'old', 'Admin IP': '127.0.0.1', 'CN Agent Port': port };
  await post(`${zone.instances[0]?.url}/servers/${UUID}/sysinfo`, { sysinfo });
  let turn = 0;
  const beat = () => {
    const { url } = zone.instances[turn++ % zone.instances.length] as Instance;
    const signal = AbortSignal.timeout(2_000);
    void fetch(`${url}/servers/${UUID}/events/heartbeat`, { method: 'POST', signal }).catch(() => undefined);
  };
  beat();
  const timer = setInterval(beat, 1_000);
  t.teardown(() => clearInterval(timer));
  await zone.untilRunning(1);
  return agent;
}

async function hold({ url }: Instance, agent: FakeLegacyAgent, name: string): Promise<string> {
  const body = { task: 'hold', params: { name } };
  const { id } = await post<{ id: string }>(`${url}/servers/${agent.serverUuid}/tasks`, body);
  await agent.holds(name);
  return id;
}

async function end({ url }: Instance, id: string): Promise<Task> {
  return (await fetch(`${url}/tasks/${id}/wait?timeout=120`)).json() as Promise<Task>;
}

const timeout = FILE_TIMEOUT_MS;
t.setTimeout(timeout);

t.test(
  'tasks posted by an instance that is frozen or killed have one end each',
  { skip: noRedisServer, timeout },
  async (t) => {
    // Gives a frozen instance time to recover, however busy the machine is.
    const zone = await startZone(t, { agents: 0, simulated: 0, config: { ownerlessGraceMs: 20_000 } });
    const [a, b, c] = zone.instances as [Instance, Instance, Instance];
    const agent = await joinLegacyAgent(t, zone);
    const untilDead = () =>
      until(async () => (await zone.sql(`select 1 from cnapi_instances where state = 'dead'`)).length === 1);

    const underLiveRun = (id: string) =>
      until(async () => {
        const sql = `select 1 from cnapi_tasks t join cnapi_instances i on i.run = t.posted_by where t.id = $1 and i.state = 'live'`;
        return (await zone.sql(sql, [id])).length === 1;
      });

    await t.test('frozen until it counts as dead, then thawed: it continues and records the ends', async (t) => {
      const during = await hold(b, agent, 'during');
      const after = await hold(b, agent, 'after');
      b.program.freeze();
      await untilDead();
      agent.finish('during', 200, { late: true });
      b.program.thaw();
      matchLists(t, await end(c, during), { status: 'complete', attempt: 1, history: [{ event: { late: true } }] });
      await underLiveRun(after);
      agent.finish('after');
      t.match(await end(c, after), { status: 'complete', attempt: 1 });
    });

    await t.test('killed: the outcome is unknown, and no instance posts the task again', async (t) => {
      const lost = await hold(a, agent, 'lost');
      const kept = await hold(b, agent, 'kept');
      const waiting = end(c, lost);
      await a.program.kill();
      const other = await hold(b, agent, 'other');
      agent.finish('other');
      t.match(await end(c, other), { status: 'complete' }, 'the others continue to post');
      matchLists(t, await waiting, {
        status: 'failure',
        attempt: 1,
        history: [{ event: { error: { code: 'OutcomeUnknown' } } }, { name: 'finish' }],
      });
      agent.finish('kept');
      t.match(await end(c, kept), { status: 'complete' });
      agent.finish('lost');
      await sleep(1_000);
      t.same(
        agent.received.map(({ params }) => params.name),
        ['during', 'after', 'lost', 'kept', 'other'],
      );
      const ends = await zone.sql(`select task_id from cnapi_task_events where name = 'end'`);
      t.equal(ends.length, 5, 'one end each');
    });
  },
);
