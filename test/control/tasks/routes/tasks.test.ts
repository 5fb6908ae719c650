import t from 'tap';
import type { RecordedTaskEvent } from '../../../../lib/control/tasks/store/task.ts';
import { matchLists } from '../../../support/match-lists.ts';
import { until } from '../../../support/until.ts';
import { failed, finished } from '../../http/stand-ins.ts';
import { raw, SERVER, startApi, UNKNOWN_UUID } from '../../http/support.ts';

t.test('tasks for an unknown or stopped server are refused', async (t) => {
  const { call, addServer, tasks } = await startApi(t);
  await addServer(SERVER, { status: 'unknown' });
  const routes = ['tasks', 'nop', 'execute', 'sysinfo-refresh', 'cn-agent/pause', 'cn-agent/resume'];
  for (const path of routes) {
    const away = await call('POST', `/servers/${SERVER}/${path}`, path === 'tasks' ? { task: 'nop' } : {});
    t.equal(away.status, 409, path);
    t.match(away.body, { code: 'ServerNotRunning', message: 'Operation attempted on server which is not running' });
    t.match((await call('POST', `/servers/${UNKNOWN_UUID}/${path}`, {})).body, {
      code: 'ResourceNotFound',
      message: `Server ${UNKNOWN_UUID} not found`,
    });
    t.match((await call('POST', `/servers/zzz/${path}`, {})).body, {
      code: 'InvalidArgument',
      message: 'Invalid server_uuid',
    });
    t.match((await call('POST', `/servers/default/${path}`, {})).body, {
      code: 'InvalidArgument',
      message: 'Invalid server_uuid',
    });
  }
  t.same(tasks.created, []);
});

t.test('a request repeated with its idempotency key gets its task, even if the server is gone', async (t) => {
  const { call, addServer } = await startApi(t);
  await addServer(SERVER);
  const send = (key: string) => call('POST', `/servers/${SERVER}/tasks`, { task: 'nop' }, { 'idempotency-key': key });
  const first = await send('k1');
  await addServer(SERVER, { status: 'unknown' });
  const again = await send('k1');
  t.match(again, { status: 202, body: { id: first.body.id } });
  t.match(await send('k2'), { status: 409, body: { code: 'ServerNotRunning' } });
});

t.test('a task is accepted with 202 and an id, and keeps its request id and idempotency key', async (t) => {
  const { call, addServer, tasks } = await startApi(t);
  await addServer(SERVER);
  const body = { task: 'sleep', params: { timeout: 5 }, timeout_ms: 1000, idempotent: true };
  const accepted = await call('POST', `/servers/${SERVER}/tasks`, body, {
    'idempotency-key': 'k1',
    'x-request-id': 'job-1',
  });
  t.equal(accepted.status, 202);
  t.same(Object.keys(accepted.body), ['id']);
  t.same(tasks.created, [
    {
      serverUuid: SERVER,
      name: 'sleep',
      params: { timeout: 5 },
      requestId: 'job-1',
      actor: 'open',
      timeoutMs: 1000,
      idempotent: true,
      idempotencyKey: 'k1',
    },
  ]);
  const got = await call('GET', `/tasks/${accepted.body.id.toUpperCase()}`);
  t.match(got.body, { id: accepted.body.id, status: 'active', task: 'sleep', server_uuid: SERVER });
});

t.test('wrong parameters of a task are a 400 that lists them all, an undeclared one a 409', async (t) => {
  const { call, addServer } = await startApi(t);
  await addServer(SERVER);
  const tooLong = await call('POST', `/servers/${SERVER}/tasks`, { task: 'nop', timeout_ms: 2 ** 31 });
  t.equal(tooLong.status, 400, 'more than a timer or a column can hold');
  const wrong = await call('POST', `/servers/${SERVER}/tasks`, { params: [], timeout_ms: 0, idempotent: 'yes' });
  t.equal(wrong.status, 400);
  t.same(wrong.body.errors.map(({ field }: { field: string }) => field).sort(), [
    'idempotent',
    'params',
    'task',
    'timeout_ms',
  ]);
  t.equal((await call('POST', `/servers/${SERVER}/tasks`, { task: 'nop', timeout: 1 })).status, 409);
  for (const key of ['k'.repeat(201), 'a b']) {
    t.equal(
      (await call('POST', `/servers/${SERVER}/tasks`, { task: 'nop' }, { 'idempotency-key': key })).status,
      400,
      key.slice(0, 5),
    );
  }
});

t.test("execute answers as Triton's CNAPI: trimmed stdout, all with json, or 500 for a failed command", async (t) => {
  const { call, addServer, tasks } = await startApi(t);
  await addServer(SERVER);
  const execute = (body: object) =>
    call('POST', `/servers/${SERVER}/execute`, { script: '#!/bin/sh\necho ok', ...body });

  tasks.outcome = finished({ exitCode: 0, signal: null, stdout: ' ok \n', stderr: 'warn' });
  t.same((await execute({})).body, 'ok');
  for (const json of [true, 1, '1', 'TRUE', {}])
    t.same((await execute({ json })).body, { exitCode: 0, stderr: 'warn', stdout: ' ok \n' }, String(json));
  for (const json of [false, 0, '0', 'False', '', null]) t.equal((await execute({ json })).body, 'ok', String(json));
  t.same((await execute({ json: 'true', args: ['a', 1], env: { B: 'c', D: 2 }, timeout: '1000' })).body.exitCode, 0);
  t.same(tasks.created.at(-1), {
    serverUuid: SERVER,
    name: 'command_execute',
    params: { script: '#!/bin/sh\necho ok', args: ['a', '1'], env: { B: 'c', D: '2' }, timeout: 1000 },
    requestId: tasks.created.at(-1)?.requestId,
    actor: 'open',
  });
  tasks.outcome = finished({ exitCode: 3, stdout: '', stderr: 'no' });
  const nonZero = await execute({});
  t.equal(nonZero.status, 500);
  t.same(nonZero.body, { code: 'InternalError', message: 'Error executing on remote system' });
  t.same((await execute({ json: true })).body, { exitCode: 3, stderr: 'no', stdout: '' });
  tasks.outcome = failed('the command ran past its timeout');
  t.same((await execute({ json: true })).body, {
    code: 'InternalError',
    message: 'the command ran past its timeout',
  });

  const wrong = await call('POST', `/servers/${SERVER}/execute`, { args: [[1]], env: { a: null }, timeout: 'x' });
  t.equal(wrong.status, 500);
  t.same(
    wrong.body.errors.map(({ field, message }: { field: string; message: string }) => [field, message]),
    [
      ['script', 'value was not a string'],
      ['args', 'value was not an array of strings'],
      ['env', 'value was not an object of strings'],
      ['timeout', 'value was not a number'],
    ],
  );
});

t.test('nop passes on its sleep and error parameters', async (t) => {
  const { call, addServer, tasks } = await startApi(t);
  await addServer(SERVER);
  const { status, body } = await call('POST', `/servers/${SERVER}/nop`, { sleep: '3', error: 'oh' });
  t.equal(status, 200);
  t.match(body.id, /^[0-9a-f-]{36}$/);
  matchLists(t, tasks.created, [{ name: 'nop', params: { sleep: 3, error: 'oh' } }]);
  t.equal((await call('POST', `/servers/${SERVER}/nop`, { sleep: 'long' })).status, 500);
});

t.test('pause and resume answer 204 after their task; sysinfo-refresh stores the result', async (t) => {
  const { call, addServer, tasks, logged } = await startApi(t);
  await addServer(SERVER);
  tasks.outcome = finished({});
  t.equal((await call('POST', `/servers/${SERVER}/cn-agent/pause`)).status, 204);
  t.equal((await call('POST', `/servers/${SERVER}/cn-agent/resume`, {})).status, 204);
  t.same(
    tasks.created.map(({ name }) => name),
    ['agent_pause', 'agent_resume'],
  );
  tasks.outcome = finished({ sysinfo: { UUID: SERVER, Hostname: 'a\0b' } });
  t.match(await call('POST', `/servers/${SERVER}/sysinfo-refresh`, {}), {
    status: 500,
    body: { message: /^the agent answered server_sysinfo with a wrong result: sysinfo: it contains a NUL/ },
  });
  tasks.outcome = finished({ sysinfo: { UUID: SERVER, 'MiB of Memory': 77 } });
  const refreshed = await call('POST', `/servers/${SERVER}/sysinfo-refresh`, {});
  t.equal(refreshed.status, 200);
  t.equal(refreshed.text, '');
  t.equal((await call('GET', `/servers/${SERVER}`)).body.ram, 77);
  for (const result of [{}, { sysinfo: 'none' }, { sysinfo: [] }]) {
    tasks.outcome = finished(result);
    const message = /^the agent answered server_sysinfo with a wrong result: sysinfo: Invalid input/;
    t.match(await call('POST', `/servers/${SERVER}/sysinfo-refresh`, {}), { status: 500, body: { message } });
  }
  t.same(
    logged.filter(({ level }) => Number(level) >= 50),
    [],
    'a wrong answer of an agent does not look like a defect',
  );
});

t.test('a wait ends with the task or at its timeout, with 200 even for a failed task', async (t) => {
  const { call, port, addServer, tasks } = await startApi(t);
  await addServer(SERVER);
  const { id } = (await call('POST', `/servers/${SERVER}/nop`)).body;
  const early = await call('GET', `/tasks/${id}/wait?timeout=-1`);
  t.equal(early.status, 200);
  t.equal(early.body.status, 'active');
  const waitedMs = async (timeout: string) => {
    tasks.waited.length = 0;
    const abort = new AbortController();
    const left = fetch(`http://127.0.0.1:${port}/tasks/${id}/wait?timeout=${timeout}`, { signal: abort.signal });
    await until(() => tasks.waited.length > 0, 'the wait to begin');
    abort.abort();
    await left.catch(() => undefined);
    return tasks.waited[0];
  };
  for (const [timeout, seconds] of [
    ['0', 3600],
    ['0.9', 3600],
    ['soon', 3600],
    ['', 3600],
    ['20s', 20],
    ['7.9', 7],
    ['86400', 3600],
  ] as const)
    t.equal(await waitedMs(timeout), seconds * 1000, `timeout ${timeout} is read as Triton's CNAPI does`);
  const waits = [call('GET', `/tasks/${id}/wait`), call('GET', `/tasks/${id}/wait?timeout=60`)];
  Object.assign(tasks.all.get(id) ?? {}, failed('oh'));
  for (const { status, body } of await Promise.all(waits)) {
    t.equal(status, 200);
    t.equal(body.status, 'failure');
  }
  for (const path of ['', '/wait', '/events'])
    t.same((await call('GET', `/tasks/${UNKNOWN_UUID}${path}`)).body, {
      code: 'ResourceNotFound',
      message: 'no such task found',
    });
  t.equal((await call('GET', `/tasks/${id}/wait?timeout=86400`)).status, 200, 'more than an hour counts as one hour');
});

t.test('a caller that leaves ends its own wait only', async (t) => {
  const { port, call, addServer, tasks } = await startApi(t);
  await addServer(SERVER);
  const { id } = (await call('POST', `/servers/${SERVER}/nop`)).body;
  const other = call('GET', `/tasks/${id}/wait?timeout=60`);
  const abort = new AbortController();
  const leaving = fetch(`http://127.0.0.1:${port}/tasks/${id}/wait`, { signal: abort.signal }).catch(() => 'left');
  await until(() => tasks.waiting === 2, 'both to wait');
  abort.abort();
  t.equal(await leaving, 'left');
  await until(() => tasks.abandoned > 0, 'its wait to end');
  Object.assign(tasks.all.get(id) ?? {}, finished({}));
  t.equal((await other).body.status, 'complete');
  t.equal(tasks.abandoned, 1);
});

t.test('a wait on a draining instance gets 503 to be repeated elsewhere, never an active task', async (t) => {
  const leaving = new AbortController();
  const { call, addServer, tasks } = await startApi(t, { parts: { instanceLeaving: leaving.signal } });
  await addServer(SERVER);
  const { id } = (await call('POST', `/servers/${SERVER}/nop`)).body;
  const wait = call('GET', `/tasks/${id}/wait?timeout=60`);
  await until(() => tasks.waiting > 0, 'the wait to begin');
  leaving.abort();
  const { status, body, headers } = await wait;
  t.equal(status, 503);
  t.equal(body.code, 'InstanceDraining');
  t.equal(headers.get('retry-after'), '0');
  Object.assign(tasks.all.get(id) ?? {}, finished({}));
  t.match(
    await call('GET', `/tasks/${id}/wait`),
    { status: 200, body: { status: 'complete' } },
    'a task that has ended is returned',
  );
});

t.test('an instance that stops answers its waits with 503', async (t) => {
  const { call, addServer, tasks, listener } = await startApi(t);
  await addServer(SERVER);
  const { id } = (await call('POST', `/servers/${SERVER}/nop`)).body;
  const wait = call('GET', `/tasks/${id}/wait`);
  await until(() => tasks.waiting > 0, 'the wait to begin');
  await listener.stop();
  await listener.stop();
  const { status, body, headers } = await wait;
  t.equal(status, 503);
  t.equal(body.code, 'ServiceUnavailable');
  t.equal(headers.get('retry-after'), '1');
});

t.test('when an instance stops during a command, the 503 names the task and has no Retry-After', async (t) => {
  const { call, addServer, tasks, listener } = await startApi(t);
  await addServer(SERVER);
  const running = call('POST', `/servers/${SERVER}/execute`, { script: 'reboot' });
  await until(() => tasks.waiting > 0, 'the command to run');
  await listener.stop();
  const { status, body, headers } = await running;
  t.equal(status, 503);
  const [id] = tasks.all.keys();
  t.match(body.message, id);
  t.notOk(headers.has('retry-after'));
});

t.test('cancel is 202 with the task, and 409 after its end', async (t) => {
  const { call, addServer, tasks } = await startApi(t);
  await addServer(SERVER);
  const { id } = (await call('POST', `/servers/${SERVER}/nop`)).body;
  const cancelled = await call('POST', `/tasks/${id}/cancel`);
  t.equal(cancelled.status, 202);
  t.equal(cancelled.body.cancel_requested, true);
  Object.assign(tasks.all.get(id) ?? {}, finished({}));
  t.equal((await call('POST', `/tasks/${id}/cancel`)).status, 409);
  t.equal((await call('POST', `/tasks/${UNKNOWN_UUID}/cancel`)).status, 404);
});

t.test('events are streamed from first to last and resume by Last-Event-ID or ?after', async (t) => {
  const { call, addServer, tasks, port } = await startApi(t);
  await addServer(SERVER);
  const { id } = (await call('POST', `/servers/${SERVER}/nop`)).body;
  const event = (seq: number, name: RecordedTaskEvent['name'], data = {}): RecordedTaskEvent => ({
    seq,
    name,
    attempt: 1,
    timestamp: 'x',
    data,
  });
  tasks.events.push(event(1, 'accepted'), event(2, 'output', { stream: 'stdout', offset: 0, text: 'a\nb' }));
  const partly = await raw(port, `GET /tasks/${id}/events HTTP/1.1\r\nHost: localhost\r\n\r\n`, /id: 2\n/);
  t.match(partly, /^HTTP\/1.1 200 [\s\S]*content-type: text\/event-stream\r\n/i);
  tasks.events.push(event(3, 'end', { status: 'complete' }));
  const { text } = await call('GET', `/tasks/${id}/events`);
  const seen = text
    .trim()
    .split('\n\n')
    .map((block) => block.split('\n'));
  t.same(
    seen.map((lines) => lines.slice(0, 2)),
    [
      ['id: 1', 'event: accepted'],
      ['id: 2', 'event: output'],
      ['id: 3', 'event: end'],
    ],
  );
  t.same(JSON.parse(seen[1]?.[2]?.slice('data: '.length) ?? ''), tasks.events[1]);
  t.match((await call('GET', `/tasks/${id}/events`, undefined, { 'last-event-id': '2' })).text, /^id: 3\n/);
  t.match((await call('GET', `/tasks/${id}/events?after=1`)).text, /^id: 2\n/);
  t.equal((await call('GET', `/tasks/${id}/events`, undefined, { 'last-event-id': 'x' })).status, 400);
  t.equal((await call('GET', `/tasks/${id}/events?after=-1`)).status, 400);
  t.equal((await call('GET', `/tasks/${id}/events?after=${2 ** 31}`)).status, 400, 'more than a column can hold');
  const far = { 'Last-Event-ID': String(2 ** 31) };
  t.equal((await call('GET', `/tasks/${id}/events`, undefined, far)).status, 400);
  const resumed = await call('GET', `/tasks/${id}/events?after=1`, undefined, { 'Last-Event-ID': '2' });
  t.match(resumed.text, /^id: 3\n/, 'the header takes precedence over the query');
  Object.assign(tasks.all.get(id) ?? {}, finished({}));
  t.match((await call('GET', `/tasks/${id}/events`)).text, /event: end/);
  t.match((await call('GET', `/tasks/${id}/events?after=2`)).text, /event: end/);
  const sated = await call('GET', `/tasks/${id}/events`, undefined, { 'Last-Event-ID': '3' });
  t.equal(sated.status, 204, 'a client that has the end is told not to reconnect');
});
