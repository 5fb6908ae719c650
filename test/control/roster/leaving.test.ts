/**
 * Whole instances on one database that leave: what their agents, their callers and the other
 * instances see of it.
 */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import { freshZone, nopTask, type TestApp } from '../../support/apps.ts';
import { matchLists } from '../../support/match-lists.ts';
import { joinAgent, newMachine, ScriptedAgent } from '../../support/scripted-agent.ts';
import { until } from '../../support/until.ts';

interface InstanceBody {
  uuid: string;
  state: string;
}

const statesAt = async (app: TestApp) => {
  const { body } = await app.get<InstanceBody[]>('/instances');
  return new Map(body.map(({ uuid, state }) => [uuid, state]));
};

t.test("an instance told to leave through another one's REST API hands over its agents and callers", async (t) => {
  const { startApp, database } = await freshZone(t);
  const [a, b] = [await startApp(), await startApp()];
  const machine = newMachine();
  const { agent, epoch } = await joinAgent(a.url, machine);
  t.teardown(() => agent.close());
  await until(async () => (await statesAt(a)).size === 2 || undefined, 'both instances to know each other');
  const task = await nopTask(a, machine.serverUuid);
  const waiting = a.get<{ status: string }>(`/tasks/${task.id}/wait`);
  const asked = await b.post<InstanceBody>(`/instances/${a.cnapiUuid}/drain`);
  t.match(asked, { status: 202, body: { uuid: a.cnapiUuid, state: 'draining' } });
  t.equal((await b.post(`/instances/${a.cnapiUuid}/drain`)).status, 202, 'a second request is harmless');
  t.match(await b.post(`/instances/${b.cnapiUuid}/drain`), { status: 409, body: { code: 'LastInstance' } });
  t.match(await b.post(`/instances/${randomUUID()}/drain`), { status: 404, body: { code: 'ResourceNotFound' } });
  t.match(await b.post('/instances/nobody/drain'), { status: 409 });

  const { withinMs, addresses } = await agent.next('goaway');
  t.ok((withinMs ?? 0) > 20_000 && (withinMs ?? 0) <= 31_000, `within ${withinMs} ms`);
  matchLists(t, addresses, [{ uuid: b.cnapiUuid }], 'the agent is told where to connect');
  t.equal(addresses.length, 1);
  t.equal((await statesAt(b)).get(a.cnapiUuid), 'draining');
  t.equal((await a.get('/ready')).status, 503, 'callers are not sent to it');
  const unknownAgent = new ScriptedAgent(a.url, newMachine());
  await until(() => unknownAgent.refusedWith, 'a new agent to be refused');
  t.equal(unknownAgent.refusedWith, 503);

  const { agent: moved, epoch: nextEpoch } = await joinAgent(b.url, machine, { conn: 2, epoch });
  t.teardown(() => moved.close());
  t.equal(nextEpoch, epoch + 1);
  agent.close();
  const { attempt } = await moved.next('task');
  const ended = { id: task.id, attempt, reportedAt: new Date().toISOString() };
  moved.send({ type: 'task_end', ...ended, outcome: 'complete', result: {} });
  t.match(await waiting, { status: 200, body: { status: 'complete' } }, 'a waiting caller still gets its answer');
  await a.app.stopped;
  t.same([...(await statesAt(b)).keys()], [b.cnapiUuid]);
  const { rows } = await database.query('select status from cnapi_status_history where server_uuid = $1', [
    machine.serverUuid,
  ]);
  t.same(rows, [{ status: 'running' }], 'its server was never unknown');
});

t.test('the last instance leaves at once', async (t) => {
  const { startApp } = await freshZone(t);
  const only = await startApp({ drainAgentsMs: 600_000, drainWaitsMs: 600_000 });
  const { agent } = await joinAgent(only.url, newMachine());
  t.teardown(() => agent.close());
  only.app.drain('the test');
  await only.app.stopped;
  await agent.end();
});

t.test('agents without another instance and endless waits delay a drain for a bounded time', async (t) => {
  const { startApp } = await freshZone(t);
  const [a, b] = [await startApp({ drainAgentsMs: 1_500, drainWaitsMs: 2_500 }), await startApp()];
  const machine = newMachine();
  const { agent } = await joinAgent(a.url, machine);
  t.teardown(() => agent.close());
  await until(async () => (await statesAt(a)).size === 2 || undefined, 'both instances to know each other');
  const task = await nopTask(b, machine.serverUuid);
  const waiting = a.get(`/tasks/${task.id}/wait`);
  const following = fetch(`${a.url}/tasks/${task.id}/events`).then((response) => response.text());
  a.app.drain('the test');
  t.match(
    await waiting,
    { status: 503, body: { code: 'InstanceDraining' } },
    'the caller is told to ask another instance',
  );
  t.notMatch(await following, /event: end/, 'the caller resumes the stream at another instance');
  await a.app.stopped;
  await agent.end();
});

t.test('a draining instance answers new requests and closes their connections', async (t) => {
  const { startApp } = await freshZone(t);
  const [a, b] = [await startApp(), await startApp()];
  await until(async () => (await statesAt(b)).size === 2 || undefined, 'both instances to know each other');
  t.equal((await fetch(`${a.url}/ping`)).headers.get('connection'), 'keep-alive');
  a.app.drain('the test');
  const answer = await fetch(`${a.url}/ping`);
  t.match(await answer.json(), { ready: false });
  t.equal(answer.headers.get('connection'), 'close');
  a.app.drain('the test, again');
  await a.app.stopped;
  await t.rejects(fetch(`${a.url}/ping`), 'the listening sockets are closed');
});

t.test('a drain of a stopped instance does nothing', async (t) => {
  const { startApp } = await freshZone(t);
  const only = await startApp();
  await only.stop();
  only.app.drain('the test');
  await only.app.stopped;
});
