import { once } from 'node:events';
import { chmod, mkdtemp, readFile, rm, stat } from 'node:fs/promises';
import { type ClientRequest, request as httpRequest } from 'node:http';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import type { AgentDeps } from '../../../lib/agent/agent.ts';
import { MemoryJournal } from '../../../lib/agent/journal/journal-memory.ts';
import { newPostedId } from '../../../lib/agent/journal/posted-id.ts';
import { EVERYBODY, type HttpAccess, openHttpAccess } from '../../../lib/agent/legacy/http-access.ts';
import { HttpPort } from '../../../lib/agent/legacy/http-port.ts';
import { MAX_POSTED } from '../../../lib/agent/legacy/posted-tasks.ts';
import { endComplete } from '../../../lib/agent/runner/task-end.ts';
import { SimulatedMachine } from '../../../lib/agent/simulated/simulated-machine.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import { systemRandom as random } from '../../../lib/platform/random.ts';
import { systemClock as clock } from '../../../lib/platform/time/clock.ts';
import type { TaskFrame } from '../../../lib/protocol/link/frames.ts';
import { FakeLegacyCnapi } from '../../support/fake-legacy-cnapi.ts';
import { matchLists } from '../../support/match-lists.ts';
import { until } from '../../support/until.ts';
import { agent, instance, nop } from '../agent-rig.ts';
import { taskFrame } from '../frames.ts';

const agentVersion = '1.0.0';

async function httpPort(t: Test, serverUuid: string, access: HttpAccess = EVERYBODY): Promise<HttpPort> {
  const host = '127.0.0.1';
  const port = new HttpPort({ host, port: 0, access, serverUuid, agentVersion, clock, random, log: silentLogger });
  t.teardown(() => port.stop());
  await port.start();
  return port;
}

/** An agent that takes tasks over HTTP, and a function that sends it requests. */
async function posted(t: Test, fields: Partial<AgentDeps> = {}) {
  const serverUuid = random.uuid();
  const port = await httpPort(t, serverUuid);
  const server = { clock, random, serverUuid, number: 1, taskAddress: port.address };
  const machine = new SimulatedMachine({ ...server, agentVersion, sysinfoSize: 'small' });
  const journal = new MemoryJournal({ clock, random });
  const services = { machine };
  const made = await agent(t, [], { serverUuid, services, journal, httpPort: port, protocol: 'link', ...fields });
  return { ...made, serverUuid, port, journal, ask: asker(port) };
}

interface Question {
  headers?: Record<string, string>;
  body?: unknown;
}

function asker(port: HttpPort) {
  return async (method: string, path: string, { headers = {}, body }: Question = {}) => {
    const { promise, resolve, reject } = Promise.withResolvers<{ status: number; headers: object; text: string }>();
    const json = body === undefined ? {} : { 'content-type': 'application/json' };
    const request = httpRequest({ ...port.address, method, path, agent: false, headers: { ...json, ...headers } });
    request.on('error', reject);
    request.on('response', async (response) => {
      let text = '';
      for await (const chunk of response) text += chunk;
      resolve({ status: response.statusCode ?? 0, headers: response.headers, text });
    });
    request.end(typeof body === 'string' || body === undefined ? body : JSON.stringify(body));
    const answer = await promise;
    return { ...answer, body: answer.text === '' ? undefined : JSON.parse(answer.text) };
  };
}

const task = (name: string, params: object = {}) => ({ body: { task: name, params } });

t.test('the answer to a posted task is its result, after it has ended', async (t) => {
  const { ask, journal } = await posted(t);
  const params = { script: 'echo $1', args: ['hi'], server_uuid: 'ignored' };
  const answer = await ask('POST', '/tasks', {
    ...task('command_execute', params),
    headers: { 'x-request-id': 'r-7' },
  });
  t.match(answer, { status: 200, body: { exitCode: 0, stdout: 'hi\n', stderr: '', signal: null } });
  t.match(answer.headers, { 'x-request-id': 'r-7', server: 'Compute Node Agent/1.0.0', 'x-server-name': String });
  t.match(await ask('POST', '/tasks', task('nop')), { status: 200, text: '{}' });
  t.equal(journal.state.tasks.size, 0, 'the journal keeps nothing of the task');
});

t.test('the task and its parameters may be in the query or in a form', async (t) => {
  const { ask } = await posted(t);
  t.match(await ask('POST', '/tasks?task=nop&params=%7B%7D'), { status: 200, text: '{}' });
  const headers = { 'content-type': 'application/x-www-form-urlencoded' };
  const body = `task=nop&params=${encodeURIComponent('{"error":"as asked"}')}`;
  t.match(await ask('POST', '/tasks', { headers, body }), { status: 500, body: { error: 'as asked' } });
});

t.test('a form or a query with too many parameters is refused', async (t) => {
  const { ask } = await posted(t);
  const headers = { 'content-type': 'application/x-www-form-urlencoded' };
  const text = (others: number) => `task=nop&params={}${'&a'.repeat(others)}`;
  const refused = { status: 409, body: { code: 'InvalidArgument', message: 'More than 1000 parameters' } };
  t.match(await ask('POST', '/tasks', { headers, body: text(998) }), { status: 200 });
  t.match(await ask('POST', '/tasks', { headers, body: text(999) }), refused);
  t.match(await ask('POST', '/tasks', { headers, body: text(50_000) }), refused);
  t.match(await ask('POST', `/tasks?${text(998)}`), { status: 200 });
  t.match(await ask('POST', `/tasks?${text(999)}`), refused);
});

t.test("errors have the wording of Triton's agent", async (t) => {
  const { ask, serverUuid } = await posted(t);
  const deep = `${'{"a":'.repeat(300)}1${'}'.repeat(300)}`;
  const rows: [string, Question, object][] = [
    [
      '/tasks',
      task('nop', { error: 'no luck' }),
      { status: 500, body: { error: 'no luck', details: { restCode: 'NopError' } } },
    ],
    [
      '/tasks',
      task('machine_frobnicate'),
      { status: 404, body: { code: 'ResourceNotFound', message: "Unknown task, 'machine_frobnicate'" } },
    ],
    ['/tasks', task('push_command', { job: random.uuid() }), { status: 404 }],
    [
      '/tasks',
      { body: { params: {} } },
      { status: 409, body: { code: 'InvalidArgument', message: "Missing key 'task'" } },
    ],
    ['/tasks', { body: { task: 'nop' } }, { status: 409, body: { message: "Missing key 'params'" } }],
    ['/tasks', { body: { task: 'nop', params: 'x' } }, { status: 400, body: { code: 'InvalidContent' } }],
    ['/tasks', { body: { task: 'nop', params: [] } }, { status: 409, body: { message: 'Invalid params' } }],
    ['/tasks', { body: `{"task":"nop","params":${deep}}` }, { status: 409, body: { message: 'Invalid params' } }],
    [
      '/tasks',
      { body: `{"task":"nop","params":{"a":[${'[],'.repeat(300_000)}0]}}` },
      { status: 413, body: { code: 'RequestEntityTooLarge', message: 'The body holds more than 250000 values' } },
    ],
    ['/tasks', { body: '{"task' }, { status: 400, body: { code: 'InvalidContent', message: /^Invalid JSON/ } }],
    ['/tasks', { ...task('nop'), headers: { 'x-server-uuid': random.uuid() } }, { status: 404, text: '' }],
    ['/tasks', { ...task('nop'), headers: { 'x-server-uuid': serverUuid } }, { status: 200 }],
    ['/frobnicate', {}, { status: 404, body: { code: 'ResourceNotFound', message: '/frobnicate does not exist' } }],
  ];
  for (const [path, question, answer] of rows) t.match(await ask('POST', path, question), answer);
});

t.test('before its agent has started, the port answers 404', async (t) => {
  const port = await httpPort(t, random.uuid());
  t.match(await asker(port)('POST', '/tasks', task('nop')), { status: 404, text: '' });
});

t.test('a browser page cannot post tasks, whether cross-site or through DNS rebinding', async (t) => {
  const { ask, port } = await posted(t);
  const unknownOrigins: Record<string, string>[] = [
    { origin: 'http://evil.example' },
    { 'sec-fetch-site': 'cross-site' },
    { host: `evil.example:${port.address.port}` },
  ];
  for (const headers of unknownOrigins)
    t.match(await ask('POST', '/tasks?task=nop&params={}', { headers }), { status: 403 });
  matchLists(t, await ask('GET', '/history'), { body: [] });
});

t.test('without the token nobody can post tasks, read the history or pause the agent', async (t) => {
  const directory = await mkdtemp(join(tmpdir(), 'http-port-'));
  t.teardown(() => rm(directory, { recursive: true }));
  const log = silentLogger;
  const closed = await openHttpAccess({ directory, open: false, from: ['10.0.0.0/8'], log });
  const file = join(directory, 'http-token');
  const token = (await readFile(file, 'utf8')).trim();
  t.equal((await stat(file)).mode & 0o777, 0o600);
  const ask = asker(await httpPort(t, random.uuid(), closed));
  const refused = { status: 401, body: { code: 'Unauthorized', message: /http-token/ } };
  for (const headers of [{}, { authorization: 'Bearer x' }, { authorization: `Basic ${token}` }]) {
    t.match(await ask('POST', '/tasks', { ...task('nop'), headers }), refused);
    t.match(await ask('GET', '/history', { headers }), refused);
    t.match(await ask('POST', '/pause', { headers }), refused);
  }
  const headers = { authorization: `Bearer ${token}` };
  t.match(
    await ask('GET', '/history', { headers }),
    { status: 404 },
    'the token is accepted; no agent has started yet',
  );
  await openHttpAccess({ directory, open: false, from: [], log });
  t.equal((await readFile(file, 'utf8')).trim(), token, 'the token does not change');

  const named = await openHttpAccess({ directory, open: false, from: ['127.0.0.0/8', 'fd00::/64'], log });
  t.match(
    await asker(await httpPort(t, random.uuid(), named))('GET', '/history'),
    { status: 404 },
    'its network is admitted',
  );
  const open = await openHttpAccess({ directory, open: true, from: [], log });
  t.match(
    await asker(await httpPort(t, random.uuid(), open))('GET', '/history'),
    { status: 404 },
    'everybody is admitted',
  );
  const from = (remoteAddress: string) => named.admits({ headers: {}, socket: { remoteAddress } as Socket });
  t.same(['::ffff:127.0.0.1', 'fd00::7', 'fd00:1::7', '10.0.0.1', ''].map(from), [true, true, false, false, false]);

  await chmod(file, 0o644);
  await t.rejects(openHttpAccess({ directory, open: false, from: [], log }), /others may read it/);
});

t.test('connections of callers without the token do not lock out the owner', async (t) => {
  const access: HttpAccess = { admits: ({ headers }) => headers.authorization === 'Bearer right' };
  const port = await httpPort(t, random.uuid(), access);
  const hold = async (localAddress: string) => {
    const socket = connect({ ...port.address, localAddress });
    socket.on('error', () => undefined);
    socket.on('connect', () => socket.write('GET /history HTTP/1.1\r\n'));
    t.teardown(() => socket.destroy());
    await Promise.race([once(socket, 'connect'), once(socket, 'close')]);
    return socket;
  };
  const idle: Socket[] = [];
  for (let each = 0; each < 1_050; each += 1) idle.push(await hold(`127.0.1.${each % 7}`));
  const owner = await asker(port)('GET', '/history', { headers: { authorization: 'Bearer right' } });
  t.equal(owner.status, 404, 'it is answered, though no agent has started');
  const isOpen = (socket: Socket) => !socket.destroyed;
  await until(() => idle.filter(isOpen).length <= 200, 'most of the idle connections to be closed');
  t.ok(
    idle.slice(0, 850).every((socket) => socket.destroyed),
    'the oldest first',
  );
  const one = await hold('127.0.2.1');
  one.resume();
  await once(one, 'close');
  t.pass('one that sends no request is closed');
});

t.test('a caller with the token keeps a connection that is older than those of others', async (t) => {
  const access: HttpAccess = { admits: ({ headers }) => headers.authorization === 'Bearer right' };
  const port = await httpPort(t, random.uuid(), access);
  const kept = connect({ ...port.address });
  t.teardown(() => kept.destroy());
  const ask = async () => {
    kept.write('GET /history HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer right\r\n\r\n');
    const [answer] = await once(kept, 'data');
    return String(answer);
  };
  t.match(await ask(), / 404 /);
  for (let each = 0; each < 120; each += 1) {
    const other = connect({ ...port.address });
    other.on('error', () => undefined);
    t.teardown(() => other.destroy());
    await once(other, 'connect');
  }
  t.match(await ask(), / 404 /);
});

t.test('the history hides the secret parameters of a posted task', async (t) => {
  const { ask } = await posted(t);
  await ask('POST', '/tasks', task('nop', { env: { PASSWORD: 'hush' }, secret_params: ['/env/PASSWORD'] }));
  matchLists(t, await ask('GET', '/history'), { body: [{ params: { env: { PASSWORD: '(secret)' } } }] });
});

t.test('a paused agent refuses tasks from HTTP and from the link until it is resumed', async (t) => {
  const one = await instance(t);
  const { ask } = await posted(t, { resolve: async () => [one.address] });
  const session = await one.session(0);
  await session.received('inventory');
  t.match(await ask('POST', '/pause'), { status: 204, text: '' });
  const refused = {
    status: 503,
    body: { code: 'ServiceUnavailable', message: 'CN Agent is not accepting tasks for maintenance' },
  };
  t.match(await ask('POST', '/tasks', task('nop')), refused);
  const given = nop(1);
  session.task(given);
  t.match(await session.end(given.id), { error: { code: 'AgentPaused' } });
  t.match(await ask('POST', '/resume'), { status: 204 });
  t.match(await ask('POST', '/tasks', task('nop')), { status: 200 });
});

t.test('the history holds the last sixteen posted tasks and their outcomes', async (t) => {
  const { ask } = await posted(t);
  for (let n = 0; n < 20; n++) await ask('POST', '/tasks', task('nop', n === 19 ? { error: 'no luck' } : { n }));
  const running = ask('POST', '/tasks', task('sleep', { timeout: 60_000 }));
  running.catch(() => undefined);
  const history = async () => (await ask('GET', '/history')).body;
  await until(async () => (await history()).at(-1).task === 'sleep');
  const body = await history();
  t.equal(body.length, 16);
  const failed = body.find(({ status }: { status: string }) => status === 'failed');
  matchLists(t, failed, {
    task: 'nop',
    errorCount: 1,
    pid: process.pid,
    messages: Array,
    log: [],
    finished_at: String,
  });
  t.match(body.at(-1), { task: 'sleep', status: 'active', params: { timeout: 60_000 }, finished_at: undefined });
});

t.test('posted tasks and tasks of the link do not appear in each other’s inventory or history', async (t) => {
  const one = await instance(t, { acknowledge: false });
  const { ask, journal } = await posted(t, { resolve: async () => [one.address] });
  const session = await one.session(0);
  await session.received('inventory');
  const given = { ...nop(1), name: 'sleep', params: { timeout: 60_000 } };
  session.task(given);
  await until(() => session.events(given.id).includes('started'), 'the task to start');
  const slow = ask('POST', '/tasks', task('command_execute', { script: 'echo posted\nsleep 0.5' }));
  await until(() => journal.state.tasks.size === 2, 'both in the journal');
  session.cut();
  const next = await one.session(1);
  matchLists(t, (await next.received('inventory')).tasks, [{ id: given.id, state: 'running' }]);
  t.match(await slow, { status: 200, body: { stdout: 'posted\n' } });
  const ids = [...session.frames, ...next.frames].flatMap((frame) => ('id' in frame ? [frame.id] : []));
  t.same(new Set(ids), new Set([given.id]));
  matchLists(t, (await ask('GET', '/history')).body, [{ task: 'command_execute' }]);
  next.send({ type: 'task_cancel', id: given.id, attempt: 1 });
  await next.end(given.id);
});

t.test('posted tasks of a former agent process are removed, whatever their state', async (t) => {
  const journal = new MemoryJournal({ clock, random });
  const [accepted, running, ended] = [0, 1, 2].map(() => taskFrame({ id: newPostedId(random), name: 'nop' })) as [
    TaskFrame,
    TaskFrame,
    TaskFrame,
  ];
  for (const frame of [accepted, running, ended]) await journal.append({ record: 'accepted', task: frame });
  const group = { pgid: 4711, startTime: '1', bootId: 'b' };
  await journal.append({ record: 'started', id: running.id, group });
  await journal.append({ record: 'ended', end: endComplete(ended, {}, '') });
  const groups: unknown[] = [];
  const serverUuid = random.uuid();
  const machine = new SimulatedMachine({ clock, random, serverUuid, number: 1, agentVersion, sysinfoSize: 'small' });
  machine.endGroup = async (...args: unknown[]) => void groups.push(args[0]);
  await agent(t, [], { journal, services: { machine }, serverUuid });
  t.same(groups, [group]);
  t.equal(journal.state.tasks.size, 0);
});

t.test('an agent that is full refuses further posted tasks', async (t) => {
  const { ask, agent: made } = await posted(t);
  const waiting = Array.from({ length: MAX_POSTED }, () => ask('POST', '/tasks', task('sleep', { timeout: 60_000 })));
  for (const one of waiting) one.catch(() => undefined);
  await until(() => made.isFull, 'the agent to be full');
  const refused = { code: 'ServiceUnavailable', message: 'CN Agent has as many tasks as it can take' };
  t.match(await ask('POST', '/tasks', task('nop')), { status: 503, body: refused });
});

t.test('a body that is too large is not read to its end', async (t) => {
  const { ask } = await posted(t);
  const outcome = await ask('POST', '/tasks', { body: 'x'.repeat(9 * 1024 * 1024) }).catch(({ code }) => code);
  t.ok(outcome.status === 413 || ['EPIPE', 'ECONNRESET'].includes(outcome), JSON.stringify(outcome));
  t.match(await ask('POST', '/tasks', task('nop')), { status: 200 });
});

t.test('at most 64 MiB of unfinished bodies are held; further requests get 503 until there is room', async (t) => {
  const { ask, port } = await posted(t);
  const bytes = 8 * 1024 * 1024;
  const headers = { 'content-type': 'application/json', 'content-length': String(bytes) };
  const almost = Buffer.alloc(bytes - 1, ' ');
  const unfinished: ClientRequest[] = [];
  const begin = () => {
    const request = httpRequest({ ...port.address, method: 'POST', path: '/tasks', agent: false, headers });
    // Those over the limit are refused while they send.
    request.on('error', () => undefined);
    request.write(almost);
    unfinished.push(request);
  };
  const post = () => ask('POST', '/tasks', task('nop'));
  const refused = await until(async () => {
    begin();
    const answer = await post();
    return answer.status !== 200 && answer;
  }, 'the bodies to fill the limit');
  t.match(refused, { status: 503, body: { message: 'CN Agent is reading as many requests as it can take' } });
  t.ok(unfinished.length > 8, `${unfinished.length} of 8 MiB`);
  for (const request of unfinished) request.destroy();
  await until(async () => (await post()).status === 200, 'room for a request');
});

t.test('an agent that stops ends its posted tasks with an error and closes the port', async (t) => {
  const { ask, port, agent: made } = await posted(t);
  const running = ask('POST', '/tasks', task('sleep', { timeout: 60_000 }));
  await until(() => made.history[0]?.messages.length === 2, 'the task to start');
  const { address } = port;
  await made.stop();
  t.match(await running, { status: 500, body: { error: 'The agent was stopped while the task ran' } });
  await t.rejects(fetch(`http://${address.host}:${address.port}/history`), { cause: { code: 'ECONNREFUSED' } });
});

t.test('sysinfo names the port of an agent, and a legacy CNAPI posts tasks there', async (t) => {
  const cnapi = await FakeLegacyCnapi.start();
  t.teardown(() => cnapi.stop());
  const { serverUuid, port } = await posted(t, { protocol: 'auto', resolve: async () => [cnapi.address] });
  await until(() => cnapi.statusOf(serverUuid) === 'running', 'its heartbeat');
  t.match(cnapi.all('/sysinfo')[0]?.body.sysinfo, { 'CN Agent Port': port.address.port, 'Admin IP': '127.0.0.1' });
  t.match(await cnapi.runTask(serverUuid, 'command_execute', { script: 'echo done' }), {
    status: 200,
    body: { stdout: 'done\n' },
  });
  t.match(await cnapi.runTask(serverUuid, 'server_sysinfo'), {
    status: 200,
    body: { sysinfo: { UUID: serverUuid } },
  });
});
