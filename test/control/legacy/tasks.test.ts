/**
 * Tasks for servers with legacy agents, through whole instances: real HTTP in both directions, real
 * Postgres.
 */
import t from 'tap';
import type { Task } from '../../../lib/protocol/api/tasks.ts';
import { freshZone, type TestApp } from '../../support/apps.ts';
import { type FakeLegacyAgent, startFakeLegacyAgent } from '../../support/fake-legacy-agent.ts';
import { matchLists } from '../../support/match-lists.ts';
import type { Teardown } from '../../support/postgres.ts';
import { joinAgent, newMachine } from '../../support/scripted-agent.ts';
import { until } from '../../support/until.ts';

/** A server whose legacy agent has posted its sysinfo. */
async function join(t: Teardown, app: TestApp, sysinfo: object = {}): Promise<FakeLegacyAgent> {
  const agent = await startFakeLegacyAgent(t);
  const uuid = agent.serverUuid;
  const place = { 'Admin IP': '127.0.0.1', 'CN Agent Port': agent.port };
  await app.post(`/servers/${uuid}/sysinfo`, { sysinfo: { UUID: uuid, Hostname: 'old', ...place, ...sysinfo } });
  return agent;
}

async function give(
  app: TestApp,
  { serverUuid }: FakeLegacyAgent,
  task: string,
  params: object = {},
  more: object = {},
) {
  const { status, body } = await app.post<{ id: string; code?: string }>(`/servers/${serverUuid}/tasks`, {
    task,
    params,
    ...more,
  });
  return { status, ...body };
}

const wait = async (app: TestApp, id: string) => (await app.get<Task>(`/tasks/${id}/wait?timeout=60`)).body;
const failed = (code: string, message: string | RegExp) => ({
  status: 'failure',
  history: [{ name: 'error', event: { error: { code, message } } }, { name: 'finish' }],
});

const isOpen = (app: TestApp) =>
  fetch(`${app.url}/ping`).then(
    (response) => response.text().then(() => true),
    () => false,
  );

const answering =
  (status: number, body = '', headers = {}): NonNullable<FakeLegacyAgent['misbehave']> =>
  (_request, response) => {
    response.writeHead(status, headers);
    response.end(body);
  };

t.test('tasks of legacy agents', async (t) => {
  const zone = await freshZone(t);
  const [a, b, c] = [await zone.startApp(), await zone.startApp(), await zone.startApp()];
  const metric = async (app: TestApp, name: string) => {
    const text = await (await fetch(`${app.url}/metrics`)).text();
    return Number(new RegExp(`^${name} (\\d+)`, 'm').exec(text)?.[1]);
  };

  t.test("a task created on one instance and awaited on another is posted once, as Triton's CNAPI does", async (t) => {
    const agent = await join(t, a);
    const { id, status } = await give(a, agent, 'hold', { name: 'one', deep: [{ a: null }] });
    t.equal(status, 202);
    await agent.holds('one');
    t.match((await b.get<Task>(`/tasks/${id}`)).body, { status: 'active', attempt: 1 });
    const waiting = wait(c, id);
    agent.finish('one', 200, { vm: { state: 'running' } });
    matchLists(t, await waiting, {
      status: 'complete',
      history: [{ name: 'finish', event: { vm: { state: 'running' } } }],
    });
    matchLists(t, agent.received, [
      {
        task: 'hold',
        params: { server_uuid: agent.serverUuid, name: 'one', deep: [{ a: null }] },
        isDigestRight: true,
      },
    ]);
    t.match(agent.received[0]?.headers, { 'x-server-uuid': agent.serverUuid });
    t.equal(agent.received.length, 1);
    t.equal(await metric(a, 'cnapi_tasks_posts_in_flight'), 0);
    t.equal((await metric(a, 'cnapi_tasks_posted_total')) >= 1, true);
  });

  t.test("a nop route of Triton's CNAPI sends its request id", async (t) => {
    const agent = await join(t, b);
    const headers = { 'content-type': 'application/json', 'x-request-id': 'from-the-caller' };
    const url = `${b.url}/servers/${agent.serverUuid}/nop`;
    const response = await fetch(url, { method: 'POST', headers, body: JSON.stringify({ error: 'on purpose' }) });
    const { id } = (await response.json()) as { id: string };
    t.match(await wait(c, id), failed('Failed', 'on purpose'));
    t.equal(agent.received[0]?.headers['x-request-id'], 'from-the-caller');
  });

  t.test('a refusal by the agent fails the task', async (t) => {
    const agent = await join(t, a);
    const outcome = async (name = 'nop') => wait(b, (await give(a, agent, name)).id);
    t.match(await outcome('no_such'), failed('UnknownTask', "Unknown task, 'no_such'"));
    agent.isPaused = true;
    t.match(await outcome(), failed('AgentPaused', 'CN Agent is not accepting tasks for maintenance'));
    agent.isPaused = false;
    agent.misbehave = answering(404);
    t.match(await outcome(), failed('NotThisServer', /not this server's/));
    agent.misbehave = answering(302, '', { location: `${a.url}/servers` });
    t.match(await outcome(), failed('BadAgentAnswer', /HTTP 302/));
    agent.misbehave = answering(200, '<html>hello</html>');
    t.match(await outcome(), failed('BadAgentAnswer', /not JSON; whether the task ran is unknown/));
    agent.misbehave = (request) => request.socket.destroy();
    t.match(await outcome(), failed('OutcomeUnknown', 'the agent gave no answer; whether the task ran is unknown'));
    await agent.close();
    t.match(await outcome(), failed('AgentUnreachable', /^the agent could not be reached; the log says why$/));
  });

  t.test('a task fails if the sysinfo names no address, or a forbidden one', async (t) => {
    const nowhere = await join(t, a, { 'Admin IP': undefined });
    t.match(await wait(b, (await give(a, nowhere, 'nop')).id), failed('NoAgentAddress', /has no admin IP/));
    const metadata = await join(t, a, { 'CN Agent IP': '169.254.169.254' });
    t.match(await wait(b, (await give(a, metadata, 'nop')).id), failed('NoAgentAddress', /not an address of a server/));
    t.equal(nowhere.received.length + metadata.received.length, 0);
  });

  t.test('a cancel cannot stop a task that a legacy agent has', async (t) => {
    const agent = await join(t, a);
    const { id } = await give(a, agent, 'hold', { name: 'x' });
    await agent.holds('x');
    t.match(await c.post(`/tasks/${id}/cancel`), {
      status: 409,
      body: { code: 'TaskNotCancellable', message: /old protocol/ },
    });
    agent.finish('x');
    t.match(await wait(b, id), { status: 'complete', cancel_requested: false });
    t.match(await c.post(`/tasks/${id}/cancel`), { status: 409, body: { code: 'TaskEnded' } });
  });

  t.test('a task continues although its server turns unknown while it runs', async (t) => {
    const agent = await join(t, a);
    const { id } = await give(a, agent, 'hold', { name: 'x' });
    await agent.holds('x');
    await zone.database.query(`update cnapi_roster_authority set status = 'unknown' where server_uuid = $1::uuid`, [
      agent.serverUuid,
    ]);
    t.match(await give(b, agent, 'nop'), { status: 409, code: 'ServerNotRunning' });
    agent.finish('x');
    t.match(await wait(b, id), { status: 'complete' });
  });

  t.test('after a change to a linked agent, posted tasks end as before and new ones use the link', async (t) => {
    const agent = await join(t, a);
    const { id } = await give(a, agent, 'hold', { name: 'x' });
    await agent.holds('x');
    const { agent: next } = await joinAgent(b.url, { ...newMachine(), serverUuid: agent.serverUuid });
    t.teardown(() => next.close());
    const { id: later } = await give(c, agent, 'nop');
    const { attempt } = await next.next('task');
    next.send({ type: 'task_end', id: later, attempt, outcome: 'complete', result: {}, reportedAt: 'now' });
    t.match(await wait(a, later), { status: 'complete' });
    t.match((await c.get<Task>(`/tasks/${id}`)).body, { status: 'active' }, 'no inventory settles a posted task');
    agent.finish('x');
    t.match(await wait(c, id), { status: 'complete', attempt: 1 });
    t.same(next.frames.filter(({ type }) => type === 'task').length, 1);
    t.equal(agent.received.length, 1);
    const history = `/servers/${agent.serverUuid}/task-history`;
    matchLists(
      t,
      (await a.get<{ id: string }[]>(history)).body,
      [{ id: later }, { id }],
      'history now comes from the database',
    );
  });

  t.test('a task whose agent never answers ends past its timeout', async (t) => {
    const hasty = await zone.startApp({ taskOverdueMs: 500 });
    const agent = await join(t, hasty);
    const { id } = await give(hasty, agent, 'hold', { name: 'x' }, { timeout_ms: 200 });
    t.match(await wait(b, id), failed('TaskTimeout', /the outcome is unknown/));
    await hasty.stop();
  });

  t.test('history, pause and resume of a legacy agent are its own', async (t) => {
    const agent = await join(t, a);
    await wait(b, (await give(a, agent, 'nop', { n: 1 })).id);
    await wait(b, (await give(a, agent, 'nop', { n: 2 })).id);
    const path = `/servers/${agent.serverUuid}`;
    matchLists(t, await c.get(`${path}/task-history`), {
      status: 200,
      body: [{ task: 'nop', params: { n: 2 } }, { params: { n: 1 } }],
    });
    matchLists(t, await c.get(`${path}/task-history?limit=1`), { status: 200, body: [{ params: { n: 2 } }] });
    t.match(await b.post(`${path}/cn-agent/pause`), { status: 204 });
    t.equal(agent.isPaused, true);
    t.match(await c.post(`${path}/cn-agent/resume`), { status: 204 });
    t.equal(agent.isPaused, false);
    const ticket = { ticket_uuid: agent.serverUuid };
    t.match(await c.post(`${path}/cn-agent/pause`, ticket), { status: 409, body: { code: 'InvalidArgument' } });
    t.equal(agent.isPaused, false);
    agent.misbehave = answering(503);
    const said = (message: RegExp) => ({ status: 500, body: { code: 'InternalError', message } });
    t.match(await c.get(`${path}/task-history`), said(/^The agent of server .* answered GET \/history with HTTP 503/));
    agent.misbehave = answering(200, '{}');
    t.match(await c.get(`${path}/task-history`), said(/not a list of tasks/));
    await agent.close();
    t.match(await c.get(`${path}/task-history`), said(/it gave no answer to GET \/history; the log says why$/));
    t.match(await c.post(`${path}/cn-agent/pause`), said(/it gave no answer to POST \/pause; the log says why$/));
    await zone.database.query(`update cnapi_roster_authority set status = 'unknown' where server_uuid = $1::uuid`, [
      agent.serverUuid,
    ]);
    matchLists(
      t,
      await c.get(`${path}/task-history`),
      { status: 200, body: [{ task: 'nop' }, { task: 'nop' }] },
      'from the database',
    );
  });

  t.test('a hundred tasks at once are each posted once', async (t) => {
    const agent = await join(t, a);
    const apps = [a, b, c] as const;
    const given = await Promise.all(
      Array.from({ length: 100 }, (_, n) => give(apps[n % 3] as TestApp, agent, 'nop', { n })),
    );
    const ends = await Promise.all(given.map(({ id }, n) => wait(apps[(n + 1) % 3] as TestApp, id)));
    t.equal(ends.filter(({ status }) => status === 'complete').length, 100);
    t.same(
      agent.received.map(({ params }) => params.n).toSorted(),
      Array.from({ length: 100 }, (_, n) => n).toSorted(),
    );
  });

  t.test('an instance that stops ends its posted tasks as unknown at once', async (t) => {
    const leaving = await zone.startApp();
    const agent = await join(t, a);
    const { id } = await give(leaving, agent, 'hold', { name: 'x' });
    await agent.holds('x');
    t.equal(await metric(leaving, 'cnapi_tasks_posts_in_flight'), 1);
    const waiting = wait(c, id);
    await leaving.stop();
    t.match(await waiting, failed('OutcomeUnknown', /whether the task ran is unknown/));
    t.equal(agent.received.length, 1);
  });

  t.test('an instance that drains waits for its posted tasks', async (t) => {
    const leaving = await zone.startApp();
    const agent = await join(t, a);
    const { id } = await give(leaving, agent, 'hold', { name: 'x' });
    await agent.holds('x');
    leaving.app.drain('a test');
    // All it has left to do is to wait: it accepts no callers any more.
    await until(async () => !(await isOpen(leaving)), 'its listening sockets to be closed');
    await new Promise((resolve) => setTimeout(resolve, 300));
    agent.finish('x');
    t.match(await wait(b, id), { status: 'complete' });
    await leaving.app.stopped;
  });

  t.test('a task posted by an instance that died ends as unknown and is not posted again', async (t) => {
    const agent = await join(t, a);
    const dying = await zone.startApp();
    const { id } = await give(dying, agent, 'hold', { name: 'x' });
    await agent.holds('x');
    // How other instances see its death: its run is over, and no end was recorded.
    await zone.database.query(
      `update cnapi_tasks t set posted_by = '00000000-0000-4000-8000-000000000000' where id = $1::uuid`,
      [id],
    );
    t.match(await wait(c, id), failed('OutcomeUnknown', /the instance .* is gone; whether the task ran is unknown/));
    agent.finish('x', 200, { late: true });
    await until(() => agent.received.length === 1, 'nothing more to be posted');
    t.match((await b.get<Task>(`/tasks/${id}`)).body, { status: 'failure', attempt: 1 });
    await dying.stop();
  });
});
