/**
 * Servers whose agents post their heartbeats, on several whole instances: the cases that the
 * reference's instances get wrong. All run at once in one zone, each with its own server.
 */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import { freshZone, type TestApp } from '../../support/apps.ts';
import { matchLists } from '../../support/match-lists.ts';
import { joinAgent, newMachine } from '../../support/scripted-agent.ts';

/**
 * The default proportions at a quarter of the times, except for posts: on a busy machine they and
 * their records are late.
 */
const TIMES = { legacyHeartbeatLifetimeMs: 2700, legacyHeartbeatRecordMs: 1000, legacyGraceMs: 500, slowPollMs: 500 };
const POST_MS = 500;
const SILENCE_MS = 4200;

interface Change {
  status: string;
  reason: string;
  cnapi_uuid: string;
}

class FakeLegacyAgent {
  readonly serverUuid = randomUUID();
  #timer: ReturnType<typeof setInterval> | undefined;
  #posts: Promise<unknown> = Promise.resolve();

  async register(app: TestApp): Promise<void> {
    const sysinfo = { UUID: this.serverUuid, Hostname: 'old', 'CN Agent Port': 5309 };
    const { status } = await app.post(`/servers/${this.serverUuid}/sysinfo`, { sysinfo });
    if (status !== 200) throw new Error(`sysinfo was answered with ${status}`);
  }

  async beat(app: TestApp): Promise<number> {
    return (await app.post(`/servers/${this.serverUuid}/events/heartbeat`)).status;
  }

  /** Posts to these in turn, like a name with several addresses. */
  beatOn(...apps: TestApp[]): void {
    clearInterval(this.#timer);
    let turn = 0;
    const post = () => {
      this.#posts = this.beat(apps[turn++ % apps.length] as TestApp).catch(() => undefined);
    };
    post();
    this.#timer = setInterval(post, POST_MS);
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.#posts;
  }
}

type Tap = { teardown(work: () => unknown): void };

function newLegacyAgent(t: Tap): FakeLegacyAgent {
  const agent = new FakeLegacyAgent();
  t.teardown(() => agent.stop());
  return agent;
}

const statusOn = async (app: TestApp, { serverUuid }: { serverUuid: string }) =>
  (await app.get<{ status: string }>(`/servers/${serverUuid}`)).body.status;

const history = async (app: TestApp, { serverUuid }: { serverUuid: string }) =>
  (await app.get<Change[]>(`/servers/${serverUuid}/status-history`)).body.map(({ reason }) => reason).toReversed();

async function untilStatus(app: TestApp, agent: { serverUuid: string }, status: string): Promise<void> {
  for (let end = Date.now() + 60_000; (await statusOn(app, agent)) !== status; await sleep(20))
    if (Date.now() > end) throw new Error(`the server did not become ${status}`);
}

const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

t.test('legacy agents on two instances and others that come and go', async (t) => {
  t.jobs = 8;
  const zone = await freshZone(t);
  const [a, b] = [await zone.startApp(TIMES), await zone.startApp(TIMES)];

  t.test('a server created by its agent runs at once, everywhere, until its heartbeats stop', async (t) => {
    const agent = newLegacyAgent(t);
    await agent.register(a);
    t.equal(await statusOn(b, agent), 'running', 'its creation counts as a heartbeat');
    agent.beatOn(b);
    await sleep(2 * SILENCE_MS);
    t.equal(await statusOn(a, agent), 'running');
    await agent.stop();
    await untilStatus(a, agent, 'unknown');
    const refused = await b.post(`/servers/${agent.serverUuid}/nop`);
    t.match(refused, { status: 409, body: { code: 'ServerNotRunning' } }, 'an unknown server is given no work');
    t.equal(await agent.beat(a), 204);
    await untilStatus(b, agent, 'running');
    t.same((await history(a, agent)).slice(0, 3), ['legacy-heartbeat', 'legacy-silent', 'legacy-heartbeat']);
  });

  t.test('each instance shows the last heartbeat of a server', async (t) => {
    const agent = newLegacyAgent(t);
    const from = Date.now();
    await agent.register(a);
    agent.beatOn(a);
    for (const app of [a, b]) {
      const { body } = await app.get<{ last_heartbeat: string }>(`/servers/${agent.serverUuid}`);
      t.ok(Math.abs(Date.parse(body.last_heartbeat) - from) < 60_000);
      const list = await app.get<object[]>(`/servers?uuids=${agent.serverUuid}&extras=last_heartbeat`);
      matchLists(t, list.body, [{ last_heartbeat: /^\d{4}-.*Z$/ }]);
    }
    const plain = await b.get<object[]>(`/servers?uuids=${agent.serverUuid}`);
    t.notOk('last_heartbeat' in (plain.body[0] ?? {}));
  });

  t.test('reference defect 1: after a server moves from A to B, A does not set it unknown', async (t) => {
    const agent = newLegacyAgent(t);
    await agent.register(a);
    agent.beatOn(a);
    await sleep(SILENCE_MS);
    agent.beatOn(b);
    await sleep(3 * SILENCE_MS);
    t.same(await history(b, agent), ['legacy-heartbeat'], 'running throughout');
    agent.beatOn(a, b);
    await sleep(2 * SILENCE_MS);
    t.same(await history(a, agent), ['legacy-heartbeat'], 'also when it alternates between them');
  });

  t.test('reference defect 2: a new instance sets no server unknown that another instance hears', async (t) => {
    const agent = newLegacyAgent(t);
    await agent.register(a);
    agent.beatOn(a);
    await sleep(SILENCE_MS);
    const c = await zone.startApp(TIMES);
    await sleep(3 * SILENCE_MS);
    t.same(await history(c, agent), ['legacy-heartbeat']);
    t.equal(await statusOn(c, agent), 'running');
  });

  t.test('reference defect 3: heartbeats of unknown servers and invalid UUIDs do no harm', async (t) => {
    const agent = newLegacyAgent(t);
    await agent.register(a);
    agent.beatOn(a, b);
    const unknownServers = [
      randomUUID(),
      '00000000-0000-4000-8000-000000000000',
      'ffffffff-ffff-4fff-bfff-ffffffffffff',
    ];
    for (const until = Date.now() + 2 * SILENCE_MS; Date.now() < until; await sleep(100)) {
      for (const unknownServer of unknownServers)
        t.equal((await a.post(`/servers/${unknownServer}/events/heartbeat`)).status, 204);
      const malformed = await a.post('/servers/zzz/events/heartbeat');
      t.match(malformed, { status: 409, body: { code: 'InvalidArgument', message: 'Invalid server_uuid' } });
    }
    t.equal((await a.get('/ping')).status, 200);
    t.same(await history(b, agent), ['legacy-heartbeat']);
    const { rows } = await zone.database.query(
      `select server_uuid from (select server_uuid from cnapi_status union select server_uuid from cnapi_roster_authority) all_of
       where server_uuid = any ($1::uuid[])`,
      [unknownServers],
    );
    t.same(rows, [], 'no server is created');
  });

  t.test('after the instance that heard a server last ends, another hears it or sets it unknown', async (t) => {
    const c = await zone.startApp(TIMES);
    const [moving, ending] = [newLegacyAgent(t), newLegacyAgent(t)];
    for (const agent of [moving, ending]) {
      await agent.register(c);
      agent.beatOn(c);
    }
    await sleep(SILENCE_MS);
    await ending.stop();
    await c.stop();
    moving.beatOn(b);
    await untilStatus(b, ending, 'unknown');
    t.same(await history(b, moving), ['legacy-heartbeat']);
  });

  t.test('a session outranks posts during an upgrade, with both agents, and after a rollback', async (t) => {
    const old = newLegacyAgent(t);
    await old.register(a);
    old.beatOn(a, b);
    const { agent } = await joinAgent(b.url, { ...newMachine(), serverUuid: old.serverUuid });
    await sleep(SILENCE_MS);
    t.equal(agent.closed, undefined, 'the session stays');
    await old.stop();
    await sleep(1.5 * SILENCE_MS);
    t.same(
      await history(a, old),
      ['legacy-heartbeat'],
      'with only the new agent left the server was running throughout',
    );
    old.beatOn(a, b);
    agent.close();
    for (let end = Date.now() + 60_000; (await history(a, old)).length < 3 && Date.now() < end; ) await sleep(50);
    await sleep(2 * SILENCE_MS);
    t.same(await history(a, old), ['legacy-heartbeat', 'closed', 'legacy-heartbeat'], 'after the rollback');
    await old.stop();
    await untilStatus(a, old, 'unknown');
  });

  t.test('a removed server whose legacy agent still posts stays removed until a new sysinfo', async (t) => {
    const agent = newLegacyAgent(t);
    await agent.register(a);
    agent.beatOn(a, b);
    await sleep(POST_MS);
    t.equal(await a.delete(`/servers/${agent.serverUuid}`), 200);
    await sleep(SILENCE_MS);
    t.equal((await b.get(`/servers/${agent.serverUuid}`)).status, 404);
    t.same(await history(b, agent), ['legacy-heartbeat', 'removed']);
    await agent.register(b);
    t.equal(await statusOn(a, agent), 'running');
  });

  t.test('a legacy agent also posts its agents and the state of its machine', async (t) => {
    const agent = newLegacyAgent(t);
    const path = `/servers/${agent.serverUuid}`;
    t.equal((await a.post(`${path}/events/status`, { vms: {} })).status, 404, 'for a server that does not exist');
    await agent.register(a);
    const agents = [{ name: 'cn-agent', image_uuid: randomUUID(), version: '2.15.0' }];
    t.equal((await b.post(path, { agents })).status, 204);
    const vm = randomUUID();
    const state = {
      vms: { [vm]: { uuid: vm, state: 'running', max_physical_memory: 128 } },
      zpoolStatus: { zones: { bytes_available: 1, bytes_used: 2 } },
      meminfo: { availrmem_bytes: 3, arcsize_bytes: 4, total_bytes: 5 },
      diskinfo: { pool_size_bytes: 6 },
      boot_time: 1,
      timestamp: 'x',
    };
    t.equal((await a.post(`${path}/events/status`, state)).status, 204);
    t.match((await b.get(path)).body, {
      agents,
      vms: state.vms,
      memory_arc_bytes: 4,
      disk_pool_size_bytes: 6,
      status: 'running',
    });
    t.equal((await b.post(`${path}/events/status`, { meminfo: { arcsize_bytes: 7 } })).status, 204);
    matchLists(t, (await a.get(path)).body, { vms: {}, memory_arc_bytes: 7 }, 'replaced as a whole');
  });
});
