/**
 * Who may see a task's parameters and output, and that secrets are shown to nobody and kept
 * nowhere.
 */
import t, { type Test } from 'tap';
import { Tokens } from '../../../../lib/control/access/tokens.ts';
import { systemRandom } from '../../../../lib/platform/random.ts';
import type { Role } from '../../../../lib/protocol/api/contract/roles.ts';
import type { TaskFrame } from '../../../../lib/protocol/link/frames.ts';
import { freshZone, type TestZone } from '../../../support/apps.ts';
import { matchLists } from '../../../support/match-lists.ts';
import { joinAgent, newMachine, type ScriptedAgent } from '../../../support/scripted-agent.ts';
import { until } from '../../../support/until.ts';
import { type Answer, call } from '../../http/support.ts';

const SECRET = 'tremendously-hushed';
const PARAMS = { script: 'echo what-was-asked', env: { PASSWORD: SECRET }, secret_params: ['/env/PASSWORD'] };

t.test('contents of a task with tokens required', async (t) => {
  const zone = await freshZone(t);
  const { url } = await zone.startApp({ access: 'tokens', trustedNetworks: { '127.0.0.0/8': 'agent' } });
  const { ask, as } = await callers(zone, url);
  const { agent, serverUuid } = await startServer(t, url, as.operator);
  const server = `/servers/${serverUuid}`;
  const create = (params: object, headers = {}) =>
    ask('operator', 'POST', `${server}/tasks`, { task: 'nop', params }, headers);

  const { status, body } = await create(PARAMS, { 'idempotency-key': 'k' });
  t.equal(status, 202);
  const id: string = body.id;
  const task = `/tasks/${id}`;
  const frame = await agent.next('task');

  await t.test('while a task runs, only its agent gets the secret', async (t) => {
    t.strictSame(frame.params, PARAMS);
    for (const role of ['operator', 'admin'] as const) {
      const { body, text } = await ask(role, 'GET', task);
      t.strictSame(body.params, { ...PARAMS, env: { PASSWORD: '(secret)' } });
      t.notMatch(text, SECRET);
    }
  });

  await t.test(
    'another secret under the same idempotency key is the same request, since no digest is kept',
    async (t) => {
      const again = await create({ ...PARAMS, env: { PASSWORD: 'another' } }, { 'idempotency-key': 'k' });
      t.match(again, { status: 202, body: { id } });
    },
  );

  run(agent, frame);
  const ended = await ask('operator', 'GET', `${task}/wait?timeout=30`);

  await t.test('callers that may run tasks see parameters and output', async (t) => {
    matchLists(t, ended.body, { status: 'complete', history: [{ event: { exitCode: 0, stdout: 'what-it-wrote' } }] });
    t.notOk('withheld' in ended.body);
    t.match((await ask('operator', 'GET', `${task}/events`)).text, 'what-it-wrote');
    t.match((await ask('operator', 'GET', `${server}/task-history`)).text, 'what-was-asked');
  });

  await t.test('a reader sees state, times, progress and exit code, and no contents, on any route', async (t) => {
    for (const path of [task, `${task}/wait`, `${task}/events`, `${server}/task-history`]) {
      const { status, text } = await ask('reader', 'GET', path);
      t.equal(status, 200, path);
      t.match(text, '"withheld":true', path);
      t.notMatch(text, /what-was-asked|what-it-wrote|how-far|PASSWORD/, path);
    }
    const { body } = await ask('reader', 'GET', task);
    matchLists(t, body, { status: 'complete', params: {}, history: [{ name: 'finish', event: { exitCode: 0 } }] });
    t.match((await ask('reader', 'GET', `${task}/events`)).text, /"value":50[\s\S]*"status":"complete"/);
    t.equal((await ask('reader', 'POST', `${task}/cancel`)).status, 403);
  });

  await t.test('a failure shows its code to all and its message only to callers that may run tasks', async (t) => {
    agent.frames.splice(0);
    const failing = await create({ script: 'false' });
    const { attempt } = await agent.next('task');
    const error = { code: 'Broken', message: 'what-it-said' };
    agent.send({ type: 'task_end', id: failing.body.id, attempt, outcome: 'failure', error, reportedAt: 'now' });
    const path = `/tasks/${failing.body.id}`;
    t.match((await ask('operator', 'GET', `${path}/wait`)).text, 'what-it-said');
    const { body, text } = await ask('reader', 'GET', path);
    matchLists(t, body, {
      status: 'failure',
      history: [{ event: { error: { code: 'Broken', message: 'withheld' } } }, { name: 'finish' }],
    });
    t.notMatch(text, 'what-it-said');
  });

  await t.test('an invalid error of the agent is a failure, and the session stays', async (t) => {
    for (const code of ['', 'x'.repeat(5_000)]) {
      agent.frames.splice(0);
      const { body } = await create({ script: 'false' });
      const { id, attempt } = await agent.next('task');
      const error = { code, message: 'what-it-said' };
      agent.send({ type: 'task_end', id, attempt, outcome: 'failure', error, reportedAt: 'now' });
      t.match((await agent.next('task_ack')).id, body.id);
      const { body: ended } = await ask('operator', 'GET', `/tasks/${id}/wait`);
      matchLists(t, ended, {
        status: 'failure',
        history: [{ event: { error: { code: 'BadAgentAnswer' } } }, { name: 'finish' }],
      });
      t.equal(agent.closed, undefined);
    }
  });

  await t.test('after the end of a task its secret is in no answer and in no table', async (t) => {
    const paths = [task, `${task}/events`, `${server}/task-history`, server, '/audit', '/diagnostics', '/metrics'];
    for (const path of paths) t.notMatch((await ask('admin', 'GET', path)).text, SECRET, path);
    const { rows } = await zone.database.query<{ name: string }>(
      "select tablename as name from pg_tables where schemaname = 'public'",
    );
    t.ok(rows.length > 10);
    for (const { name } of rows) {
      const found = await zone.database.query(`select 1 from "${name}" as row where row::text like $1`, [
        `%${SECRET}%`,
      ]);
      t.equal(found.rowCount, 0, name);
    }
    t.match((await ask('operator', 'GET', task)).body.params, { env: { PASSWORD: '(secret)' } });
  });

  await t.test('secret_params that name a missing parameter are refused, and nothing runs', async (t) => {
    const refused = {
      body: { code: 'InvalidParameters', errors: [{ field: 'secret_params', message: /do not hold/ }] },
    };
    t.match(await create({ script: 'x', secret_params: ['/env/PASSWORD'] }), { status: 400, ...refused });
    const execute = { script: 'x', secret_params: ['/env/PASSWORD'] };
    t.match(await ask('operator', 'POST', `${server}/execute`, execute), { status: 400, ...refused });
  });
});

/** Reports progress, writes output and ends. */
function run(agent: ScriptedAgent, { id, attempt }: TaskFrame): void {
  const say = (event: object) =>
    agent.send({ type: 'task_event', id, attempt, event: { reportedAt: 'now', ...event } });
  say({ name: 'accepted' });
  say({ name: 'started' });
  say({ name: 'progress', value: 50, message: 'how-far' });
  say({ name: 'output', stream: 'stdout', offset: 0, text: 'what-it-wrote' });
  const result = { exitCode: 0, signal: null, stdout: 'what-it-wrote', stderr: '' };
  agent.send({ type: 'task_end', id, attempt, outcome: 'complete', result, reportedAt: 'now' });
}

type Ask = (role: Role, method: string, path: string, body?: unknown, headers?: object) => Promise<Answer>;

async function callers({ database }: TestZone, url: string) {
  const tokens = new Tokens({ database, random: systemRandom });
  const make = async (role: Role) => {
    const { token } = await tokens.create({ name: `the ${role}`, role, createdBy: 'the test' });
    return { authorization: `Bearer ${token}` };
  };
  const as: Record<Role, { authorization: string }> = {
    reader: await make('reader'),
    operator: await make('operator'),
    admin: await make('admin'),
    agent: await make('agent'),
  };
  const ask: Ask = (role, method, path, body, headers = {}) =>
    call(url, method, path, body, { ...as[role], ...headers });
  return { ask, as };
}

async function startServer(t: Test, url: string, headers: Record<string, string>) {
  const machine = newMachine();
  const { agent } = await joinAgent(url, machine, { capabilities: ['task:nop', 'task:command_execute'] });
  t.teardown(() => agent.close());
  const { serverUuid } = machine;
  await until(
    async () => (await call(url, 'GET', `/servers/${serverUuid}`, undefined, headers)).body.status === 'running',
  );
  return { agent, serverUuid };
}
