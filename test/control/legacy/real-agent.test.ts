/**
 * Our own agent as a real process that posts like Triton's agents, and real instances: both
 * ends of the legacy protocol.
 */
import { randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import t, { type Test } from 'tap';
import type { Task } from '../../../lib/protocol/api/tasks.ts';
import { ownProgram, Program } from '../../../tools/processes/program.ts';
import { freshZone, type TestApp, type TestZone } from '../../support/apps.ts';
import { FakeLegacyCnapi } from '../../support/fake-legacy-cnapi.ts';
import { matchLists } from '../../support/match-lists.ts';
import { FILE_TIMEOUT_MS } from '../../support/patience.ts';
import { until } from '../../support/until.ts';

interface RealAgent {
  serverUuid: string;
  /** Each start is another process with the same data. */
  start(urls: readonly string[], ...args: string[]): Program;
}

async function realAgent(t: Test): Promise<RealAgent> {
  const serverUuid = randomUUID();
  const data = await mkdtemp(path.join(tmpdir(), 'real-agent-'));
  const programs: Program[] = [];
  t.teardown(async () => {
    await Promise.all(programs.map((program) => program.kill()));
    if (t.passing()) await rm(data, { recursive: true, force: true });
    else t.comment(`logs and data are kept in ${data}`);
  });
  const start = (urls: readonly string[], ...more: string[]) => {
    const args = [...urls.flatMap((url) => ['--url', url]), '--data', data, '--uuid', serverUuid, ...more];
    const logFile = path.join(data, `agent-${programs.length}.log`);
    const program = new Program({ name: 'agent', command: ownProgram('lib/agent/main.ts', args), logFile });
    programs.push(program);
    program.start();
    return program;
  };
  return { serverUuid, start };
}

const OLD = ['--protocol', 'legacy', '--http-port', '0', '--http-from', '127.0.0.1'];

/** The reason of the server's status in the roster. */
async function untilReason({ database }: TestZone, { serverUuid }: RealAgent, reason: string): Promise<void> {
  const read = () =>
    database.query<{ reason: string }>('select reason from cnapi_roster_authority where server_uuid = $1', [
      serverUuid,
    ]);
  await until(async () => (await read()).rows[0]?.reason === reason);
}

/** Until so many more of its heartbeats are recorded. */
async function untilRecorded({ database }: TestZone, { serverUuid }: RealAgent, times: number): Promise<void> {
  const last = async () => {
    const sql = 'select max(id) as id from cnapi_legacy_heartbeats where $1 = any (servers)';
    return (await database.query<{ id: number | null }>(sql, [serverUuid])).rows[0]?.id ?? 0;
  };
  for (let time = 0; time < times; time += 1) {
    const before = await last();
    await until(async () => (await last()) > before);
  }
}

async function statuses(app: TestApp, { serverUuid }: RealAgent): Promise<string[]> {
  const { body } = await app.get<{ status: string }[]>(`/servers/${serverUuid}/status-history`);
  return body.map(({ status }) => status).toReversed();
}

async function run(at: TestApp, waitAt: TestApp, { serverUuid }: RealAgent, task: string, params: object = {}) {
  const { status, body } = await at.post<{ id: string }>(`/servers/${serverUuid}/tasks`, { task, params });
  if (status !== 202) return { status, ...body };
  return (await waitAt.get<Task>(`/tasks/${body.id}/wait?timeout=60`)).body;
}

t.setTimeout(FILE_TIMEOUT_MS);

t.test('our agent and our instances with both protocols', async (t) => {
  t.jobs = 4;
  const zone = await freshZone(t);
  const [a, b] = [await zone.startApp(), await zone.startApp()];
  const urls = [a.url, b.url];

  t.test('an agent that only posts is running while it lives, and does the work given to any instance', async (t) => {
    const agent = await realAgent(t);
    const program = agent.start(urls, ...OLD);
    await untilReason(zone, agent, 'legacy-heartbeat');
    const { body: server } = await b.get<Record<string, unknown>>(`/servers/${agent.serverUuid}`);
    t.match(server, { status: 'running', sysinfo: { UUID: agent.serverUuid, 'Admin IP': '127.0.0.1' } });
    await until(async () => {
      const { body } = await a.get<{ memory_total_bytes?: number; agents?: object[] }>(`/servers/${agent.serverUuid}`);
      return (body.memory_total_bytes ?? 0) > 0 && (body.agents ?? []).length === 1;
    });
    const complete = { status: 'complete', history: [{ name: 'finish', event: { stdout: 'hi\n', exitCode: 0 } }] };
    t.match(await run(a, b, agent, 'command_execute', { script: 'echo hi' }), complete);
    matchLists(t, await run(b, a, agent, 'nop', { error: 'no luck' }), {
      status: 'failure',
      history: [{ event: { error: { message: 'no luck' } } }, { name: 'finish' }],
    });
    await untilRecorded(zone, agent, 3);
    t.same(await statuses(a, agent), ['running'], 'throughout');
    await program.kill();
    await untilReason(zone, agent, 'legacy-silent');
  });

  t.test('an agent changes from posts to a link and back on the same data', async (t) => {
    const agent = await realAgent(t);
    const posting = agent.start(urls, ...OLD);
    await untilReason(zone, agent, 'legacy-heartbeat');
    await posting.kill('SIGTERM');
    const linked = agent.start(urls, '--http-port', '0', '--http-from', '127.0.0.1');
    await untilReason(zone, agent, 'connected');
    t.match(await run(a, b, agent, 'command_execute', { script: 'echo linked' }), { status: 'complete' });
    t.same(await statuses(b, agent), ['running'], 'it never left running between posts and link');
    await linked.kill('SIGTERM');
    agent.start(urls, ...OLD);
    await untilReason(zone, agent, 'legacy-heartbeat');
    t.match(await run(b, a, agent, 'command_execute', { script: 'echo posted' }), { status: 'complete' });
  });

  t.test('between a legacy CNAPI and new instances an agent with default settings uses an instance', async (t) => {
    const old = await FakeLegacyCnapi.start();
    t.teardown(() => old.stop());
    const agent = await realAgent(t);
    const first = agent.start([old.url], '--http-port', '0', '--http-from', '127.0.0.1');
    await until(() => old.statusOf(agent.serverUuid) === 'running');
    await first.kill('SIGTERM');
    agent.start([old.url, ...urls], '--http-port', '0', '--http-from', '127.0.0.1');
    await untilReason(zone, agent, 'connected');
    await until(async () => (await b.get(`/servers/${agent.serverUuid}`)).status === 200);
    const posts = old.asked.length;
    t.match(await run(a, b, agent, 'nop'), { status: 'complete' });
    t.same([old.asked.length, await statuses(b, agent)], [posts, ['running']]);
  });
});
