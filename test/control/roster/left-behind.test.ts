/** Whole instances that leave while no other one can take over their agents and callers. */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import { freshZone, nopTask, type TestZone } from '../../support/apps.ts';
import { FILE_TIMEOUT_MS } from '../../support/patience.ts';
import { joinAgent, newMachine } from '../../support/scripted-agent.ts';
import { until } from '../../support/until.ts';

t.setTimeout(FILE_TIMEOUT_MS);

/** The row of a killed instance: others treat it as alive until its lease has lapsed. */
async function killedInstance(database: TestZone['database'], cnapiUuid: string = randomUUID()): Promise<void> {
  await database.query(
    `insert into cnapi_instances (run, cnapi_uuid, url, host, port, pid, version)
     values ($1::uuid, $2::uuid, 'http://127.0.0.1:1', '127.0.0.1', 1, 1, '0')`,
    [randomUUID(), cnapiUuid],
  );
}

const statusesOf = async (database: TestZone['database'], { serverUuid }: { serverUuid: string }) => {
  const text = 'select status, reason from cnapi_status_history where server_uuid = $1::uuid order by id';
  return (await database.query(text, [serverUuid])).rows;
};

t.test('while no other instance is alive, a leaving one keeps its agents and admits new ones', async (t) => {
  const { startApp, database } = await freshZone(t);
  const a = await startApp({ drainAgentsMs: 8_000 });
  const { agent } = await joinAgent(a.url, newMachine());
  t.teardown(() => agent.close());
  await killedInstance(database);
  const ages = async () => (await a.get<{ lease_age_ms: number }[]>('/instances')).body.map((one) => one.lease_age_ms);
  await until(async () => (await ages()).some((age) => age >= 2_500) || undefined, 'the other instance to look dead');
  a.app.drain('the test');
  const { agent: unknownAgent } = await joinAgent(a.url, newMachine());
  t.teardown(() => unknownAgent.close());
  t.equal((await a.get('/ready')).status, 503, 'callers are still not sent here');
  t.notOk(agent.frames.some(({ type }) => type === 'goaway'));
  await a.app.stopped;
});

t.test('an agent that leaves late, as told, without another instance causes no session loss', async (t) => {
  const { startApp, database } = await freshZone(t);
  const [a, b] = [
    await startApp({ drainAgentsMs: 1_000, drainWaitsMs: 4_000, ownerlessGraceMs: 10_000 }),
    await startApp({ ownerlessGraceMs: 10_000 }),
  ];
  const machine = newMachine();
  const { agent } = await joinAgent(a.url, machine);
  t.teardown(() => agent.close());
  await until(async () => (await a.get<object[]>('/instances')).body.length === 2, 'both instances to know each other');
  const task = await nopTask(b, machine.serverUuid);
  const waiting = a.get(`/tasks/${task.id}/wait`);
  a.app.drain('the test');
  const { withinMs } = await agent.next('goaway');
  const refusal = () =>
    fetch(`${a.url}/ping`).then(
      () => undefined,
      (error: Error) => (error.cause as { code?: string }).code,
    );
  await until(async () => (await refusal()) === 'ECONNREFUSED' || undefined, 'the listening sockets to be closed');
  t.ok((withinMs ?? 0) >= 1_000, 'the instance knows it before the agent leaves');
  agent.close();
  await waiting;
  await a.app.stopped;
  t.strictSame(await statusesOf(database, machine), [{ status: 'running', reason: 'connected' }]);
});

t.test('the last instance leaves at once even if it was killed and restarted just before', async (t) => {
  const { startApp, database } = await freshZone(t);
  const only = await startApp({ drainAgentsMs: 600_000, drainWaitsMs: 600_000 });
  await killedInstance(database, only.cnapiUuid);
  t.match(await only.post(`/instances/${only.cnapiUuid}/drain`), { status: 409, body: { code: 'LastInstance' } });
  only.app.drain('the test');
  await only.app.stopped;
});
