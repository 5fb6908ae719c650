/**
 * Slow readers, many streams, lost or hostile answers: the real program against scripted instances.
 */
import type { ServerResponse } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { TaskRun } from '../../lib/cli/exec/task-run.ts';
import { safeJson } from '../../lib/cli/terminal/escape-controls.ts';
import { CnapiClient } from '../../lib/client/client.ts';
import { follow } from '../../lib/client/follow.ts';
import { systemRandom as random } from '../../lib/platform/random.ts';
import { systemClock as clock } from '../../lib/platform/time/clock.ts';
import { failoverClient, type Heard, json, scripted } from '../client/rig.ts';
import { until } from '../support/until.ts';
import { Cli, records } from './rig.ts';

const UUID = '564d5b45-3a8c-4c1f-9d0a-0123456789ab';
const TICKET = '9d3c5d6e-0f53-4c4e-8f43-2a1d2f0c7b10';
const TASK_TIMES = { timestamp: '2030-01-01T00:00:00Z', history: [] };
const TASK_FACTS = { params: {}, attempt: 1, timeout_ms: 1000, idempotent: false, cancel_requested: false };
const OF_TASK = { id: TICKET, task: 'command_execute', server_uuid: UUID, status: 'failure' };
const TASK = { ...OF_TASK, ...TASK_FACTS, ...TASK_TIMES };
const GROUP = { uuid: TICKET, name: 'web' };
const NOT_NOW = { code: 'ServiceUnavailable', message: 'not now' };

function servers(...hostnames: string[]) {
  return hostnames.map((hostname, at) => ({
    uuid: UUID.slice(0, -4) + String(at).padStart(4, '0'),
    hostname,
    status: 'running' as const,
  }));
}

t.test('a slow reader of a pipe gets the whole output', async (t) => {
  const many = servers(...Array.from({ length: 900 }, (_, at) => `${at}-${'x'.repeat(500)}`));
  const instance = await scripted(t, (response) => json(response, 200, many));
  const running = new Cli(t, [instance.url]).start(['servers', '--json']);
  running.child.stdout?.pause();
  await until(() => instance.heard.length > 0, 'the request');
  await sleep(500);
  running.child.stdout?.resume();
  const { code, stdout } = await running.ended;
  t.equal(code, 0);
  t.equal((JSON.parse(stdout) as unknown[]).length, 900);
});

t.test('open event streams do not block other requests', async (t) => {
  const open: ServerResponse[] = [];
  const instance = await scripted(t, (response, { path }) => {
    if (path !== '/events') return json(response, 200, {});
    open.push(response.writeHead(200, { 'content-type': 'text/event-stream' }));
    response.write('data: one\n\n');
  });
  const client = failoverClient(t, [instance.url]);
  const streams = Array.from({ length: 100 }, () => follow(client, { path: '/events' }));
  await Promise.all(streams.map((stream) => stream.next()));
  t.equal(open.length, 100);
  t.equal((await client.call({ method: 'POST', path: '/tasks/x/cancel', repeatable: true })).status, 200);
  for (const response of open) response.destroy();
  await instance.stop();
});

t.test('a task that can no longer be followed is reported as unknown, not as failed', async (t) => {
  const rows: [string, number, number][] = [
    ['following is refused', 202, 401],
    ['whether the task was created is not known', 503, 200],
  ];
  for (const [what, created, followed] of rows) {
    const instance = await scripted(t, (response, { path }) => {
      if (path.endsWith('/events')) return json(response, followed, NOT_NOW);
      json(response, created, created === 202 ? { id: TICKET } : NOT_NOW);
    });
    const client = new CnapiClient({
      discovery: { urls: [instance.url] },
      credentials: async () => ({ token: undefined, ca: undefined }),
      clock,
      random,
    });
    t.teardown(() => client.close());
    const listener = {
      onStart() {},
      onBroken() {},
      onEnd() {},
      onCommonEnd() {},
      onNotCancelled() {},
      onOutput: async () => undefined,
    };
    const [server] = servers('web');
    if (server === undefined) throw new Error('no server');
    const command = { server, params: {}, timeoutMs: undefined, ticketUuid: undefined, detach: false };
    const [ending] = await new TaskRun({ client, random, listener }, command).run();
    t.equal(ending?.kind, 'unknown', what);
  }
});

t.test('a place in a queue that was created during Ctrl-C is released', async (t) => {
  let held: ServerResponse | undefined;
  const instance = await scripted(t, (response, { method, path }) => {
    if (path === '/instances') return json(response, 200, []);
    if (method === 'POST') held = response;
    else response.writeHead(204).end();
  });
  const running = new Cli(t, [instance.url]).start(['lock', 'default', 'a', 'b', '--', 'echo', 'ran']);
  const answer = await until(() => held, 'the request to create it');
  running.child.kill('SIGINT');
  await sleep(100);
  json(answer, 202, { uuid: TICKET, queue: [] });
  t.match(await running.ended, { code: 130, stdout: '' });
  t.ok(instance.heard.some(({ method, path }: Heard) => method === 'PUT' && path === `/tickets/${TICKET}/release`));
});

t.test('a ticket whose create got no answer is found again and not created twice', async (t) => {
  let created: Heard | undefined;
  let isActive = false;
  const instance = await scripted(t, (response, heard) => {
    const { method, path } = heard;
    if (path === '/instances') return json(response, 200, []);
    if (method === 'POST' && path.endsWith('/tickets')) {
      created ??= heard;
      return void response.destroy();
    }
    if (method === 'GET' && path.startsWith('/servers/default/tickets')) {
      const now = '2030-01-01T00:00:00Z';
      const times = { expires_at: now, created_at: now, updated_at: now };
      const reqid = created?.headers['x-request-id'];
      const about = { server_uuid: 'default', scope: 'a', id: 'b', extra: {}, status: 'active' };
      const ticket = { uuid: TICKET, ...about, reqid, ...times };
      return json(response, 200, created ? [{ ...ticket, uuid: UUID, reqid: 'another' }, ticket] : []);
    }
    isActive ||= path.startsWith(`/tickets/${TICKET}/wait`);
    response.writeHead(204).end();
  });
  const cli = new Cli(t, [instance.url]);
  t.match(await cli.run('lock', 'default', 'a', 'b', '--', 'sh', '-c', 'echo $CNAPI_TICKET'), {
    code: 0,
    stdout: `${TICKET}\n`,
  });
  t.equal(instance.heard.filter(({ method, path }) => method === 'POST' && path.endsWith('/tickets')).length, 1);
  t.ok(isActive);
});

t.test('completion omits hostile names, and JSON output holds no terminal escapes', async (t) => {
  const hostile = ['-$(touch x)\nweb;reboot', '$(id)', '`id`', 'a b', '--all', 'good-1'];
  const instance = await scripted(t, (response) => json(response, 200, servers(...hostile)));
  const { stdout } = await new Cli(t, [instance.url]).run('__complete', '--', 'exec', '');
  t.equal(stdout, 'good-1\n');
  const text = 'a\u009b31m\u202eb\x1b[2J';
  t.match(safeJson({ text }), /^[\x20-\x7e]*$/);
  t.equal(JSON.parse(safeJson({ text }, 2)).text, text);
});

t.test('lock reports a timeout only when an instance answered so', async (t) => {
  const instance = await scripted(t, (response, { method, path }) => {
    if (path === '/instances') return json(response, 200, []);
    if (method === 'POST') return json(response, 202, { uuid: TICKET, queue: [] });
    if (path.includes('/wait')) return response.destroy();
    response.writeHead(204).end();
  });
  const cli = new Cli(t, [instance.url]);
  t.match(await cli.run('lock', 'default', 'a', 'b', '--wait', '0', '--', 'echo', 'ran'), { code: 3, stdout: '' });
  t.ok(
    instance.heard.some(({ method }) => method === 'PUT'),
    'the place is released',
  );
});

t.test('when one of several ids is refused, the others are still processed', async (t) => {
  const instance = await scripted(t, (response, { path }) =>
    path.endsWith(TICKET)
      ? void response.writeHead(204).end()
      : json(response, 404, { code: 'ResourceNotFound', message: 'gone' }),
  );
  for (const command of [['unlock'], ['token', 'revoke']]) {
    const { code, stdout, stderr } = await new Cli(t, [instance.url]).run(...command, UUID, TICKET);
    t.equal(code, 1);
    t.match(stderr, 'gone (ResourceNotFound');
    t.match(stdout, TICKET);
    t.notMatch(stdout, UUID);
  }
});

t.test('a misspelt property in --where selects no server', async (t) => {
  const instance = await scripted(t, (response) => json(response, 200, servers('web-1', 'web-2')));
  const cli = new Cli(t, [instance.url]);
  t.match(await cli.run('exec', '--where', 'hostnam!=web-1', '--', 'reboot'), {
    code: 2,
    stderr: /No server has a property hostnam/,
  });
  t.ok(instance.heard.every(({ method }) => method === 'GET'));
});

t.test('with --tls a token is not sent over plain HTTP', async (t) => {
  const instance = await scripted(t, (response) => json(response, 200, []));
  t.match(await new Cli(t, [instance.url]).run('servers', '--tls'), { code: 2, stderr: /write https:/ });
  t.equal(instance.heard.length, 0);
});

/** An instance with these servers, whose tasks have these events. */
async function telling(t: Test, hostnames: readonly string[], events: readonly Event[]) {
  return scripted(t, (response, { method, path }) => {
    if (method === 'POST') return json(response, 202, { id: TICKET });
    if (path.startsWith('/servers')) return json(response, 200, servers(...hostnames));
    if (!path.endsWith('/events')) return json(response, 200, path.startsWith('/tasks/') ? TASK : []);
    response.writeHead(200, { 'content-type': 'text/event-stream' }).write(stream(events));
  });
}

function stream(events: readonly Event[]): string {
  const about = { attempt: 1, timestamp: '2030-01-01T00:00:00Z' };
  return events.map((event, seq) => `id: ${seq}\ndata: ${JSON.stringify({ seq, ...about, ...event })}\n\n`).join('');
}

interface Event {
  name: string;
  data: object;
}

const output = (offset: number, text: string) => ({ name: 'output', data: { stream: 'stdout', offset, text } });
const end = (result: object) => ({ name: 'end', data: { status: 'complete', result: { exitCode: 0, ...result } } });

t.test('exec prints output completely and in order, and reports missing bytes', async (t) => {
  const rows: [string, Event[], string, RegExp | ''][] = [
    [
      'a gap in the live output that the result fills',
      [output(0, 'one\n'), output(8, 'three\n'), end({ stdout: 'one\ntwo\nthree\n' })],
      'one\ntwo\nthree\n',
      '',
    ],
    ['twice', [output(0, 'one\n'), output(0, 'one\n'), end({ stdout: 'one\ntwo\n' })], 'one\ntwo\n', ''],
    [
      'a gap, and no output in the result',
      [output(0, 'one\n'), output(8, 'three\n'), end({})],
      'one\nthree\n',
      /web-0: 4 bytes of stdout are missing/,
    ],
  ];
  for (const [what, events, text, complaint] of rows) {
    const { url } = await telling(t, ['web-0'], events);
    const cli = new Cli(t, [url]);
    const [plain, inJson] = await Promise.all([
      cli.run('exec', '--all', '--', 'x'),
      cli.run('exec', '--all', '--json', '--', 'x'),
    ]);
    t.strictSame([plain.code, plain.stdout], [complaint === '' ? 0 : 4, text], what);
    t.equal(inJson.code, plain.code, what);
    if (complaint === '') t.equal(plain.stderr, '', what);
    else t.match(plain.stderr, complaint, what);
    const told = records<{ event: string; text?: string; cut?: number }>(inJson.stdout);
    t.equal(told.map(({ text = '' }) => text).join(''), text, `${what}, in JSON`);
    t.strictSame(
      told.flatMap(({ cut }) => cut ?? []),
      complaint === '' ? [] : [4],
    );
    t.match(told.at(-1), { event: 'end', outcome: 'ok' });
  }
});

t.test('output after a gap is shown even if the task can no longer be followed', async (t) => {
  const instance = await scripted(t, (response, { path, headers }) => {
    if (!path.endsWith('/events')) return json(response, 200, path === '/instances' ? [] : TASK);
    if (headers['last-event-id'] !== undefined)
      return json(response, 403, { code: 'NotAuthorized', message: 'no more' });
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.end(stream([output(0, 'one\n'), output(8, 'three\n')]));
  });
  const { code, stdout, stderr } = await new Cli(t, [instance.url]).run('task', TICKET, '--follow');
  t.match({ code, stdout }, { code: 1, stdout: 'one\nthree\n' });
  t.match(stderr, /4 bytes of stdout are missing here[\s\S]*no more/);
});

t.test('a second signal ends the program although its reader is blocked', async (t) => {
  const { url } = await telling(t, ['web-0'], [output(0, 'x'.repeat(2_000_000))]);
  const cli = new Cli(t, [url]);
  const each = [
    ['task', TICKET, '--follow'],
    ['exec', '--all', '--', 'x'],
  ].map(async (command) => {
    const { child, says, ended } = cli.start(command);
    await says('x');
    child.stdout?.pause();
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) child.kill(signal);
    await until(() => child.exitCode !== null, `${command[0]} to end`);
    child.stdout?.resume();
    const { code } = await ended;
    t.ok([129, 130, 143].includes(code ?? 0), `${command[0]}: ${code}`);
  });
  await Promise.all(each);
});

t.test('a repeated request is not reported as refused when the lost first one took effect', async (t) => {
  const asked = new Set<string>();
  const answer = (response: ServerResponse, { method, path }: Heard) => {
    if (path === `/tasks/${TICKET}`) return json(response, 200, { ...TASK, cancel_requested: true });
    if (path === `/tasks/${UUID}`) return json(response, 200, { ...TASK, id: UUID, cancel_requested: false });
    if (asked.has(path))
      return json(response, path.endsWith('/cancel') ? 409 : 404, refusals[path.split('/')[1] ?? '']);
    if (method === 'GET') return json(response, 200, GROUP);
    asked.add(path);
    response.destroy();
  };
  const [one, other] = [await scripted(t, answer), await scripted(t, answer)];
  const gone = { code: 'ResourceNotFound', message: 'gone' };
  const refusals: Record<string, object> = {
    tasks: { code: 'TaskEnded', message: 'has ended already' },
    tickets: gone,
    tokens: { code: 'ResourceNotFound', message: 'never was' },
    'push-jobs': gone,
    'push-schedules': gone,
    server_groups: gone,
  };
  const cli = new Cli(t, [one.url, other.url]);
  t.match(await cli.run('unlock', TICKET, '--json'), { code: 0, stdout: `{"deleted":["${TICKET}"]}\n`, stderr: '' });
  for (const [noun, what] of [
    ['schedule', 'schedule'],
    ['job', 'push job'],
    ['group', 'server group'],
  ] as const)
    t.match(await cli.run(noun, 'delete', TICKET), { code: 0, stdout: `deleted ${what} ${TICKET}\n`, stderr: '' });
  t.match(await cli.run('schedule', 'delete', TICKET), { code: 2, stderr: /gone/ }, 'it was already gone before');
  t.match(await cli.run('cancel', TICKET), { code: 0, stdout: `cancellation of ${TICKET} requested\n`, stderr: '' });
  t.match(await cli.run('cancel', UUID), { code: 1, stdout: '', stderr: /TaskEnded/ }, 'the task had ended by itself');
  t.match(
    await cli.run('token', 'revoke', TICKET),
    { code: 2, stderr: /never was/ },
    'a revoked token would still exist',
  );
  t.match(await cli.run('unlock', TICKET), { code: 2, stderr: /gone/ }, 'the ticket was already gone before');
});

t.test('when the tasks of a server cannot be read, its task history is null, not empty', async (t) => {
  const [server] = servers('web-0');
  const instance = await scripted(t, (response, { path }) => {
    if (path.startsWith('/tasks?')) return json(response, 500, { code: 'InternalError', message: 'a defect' });
    json(response, 200, path.includes('/status-history') ? [] : path.startsWith('/servers/') ? server : [server]);
  });
  const { code, stdout, stderr } = await new Cli(t, [instance.url]).run('server', 'web-0', '--json');
  t.equal(code, 0);
  t.equal((JSON.parse(stdout) as { task_history: unknown }).task_history, null);
  t.match(stderr, /its tasks cannot be read: a defect/);
});

t.test('a frozen instance is named while waiting, and is not tried first again', async (t) => {
  const frozen = await scripted(t, () => undefined);
  const good = await scripted(t, (response) => json(response, 200, []));
  const cli = new Cli(t, [frozen.url, good.url]);
  const first = cli.start(['servers', '--json']);
  await first.says(`waiting for ${frozen.url}`);
  const { code, stderr } = await first.ended;
  t.equal(code, 0);
  t.match(stderr, `${frozen.url}: no answer within 10000 ms; asking ${good.url}`);
  const asked = frozen.heard.length;
  t.match(await cli.run('servers', '--json'), { code: 0, stdout: '[]\n', stderr: '' });
  t.equal(frozen.heard.length, asked);
  t.match(await new Cli(t, [good.url, frozen.url]).run('servers', '--json'), { code: 0, stderr: '' });
  t.match((await cli.run('servers', '--url', frozen.url, '--quiet')).code, 3, 'known failures concern other addresses');
});

t.test('a read without an answer is not reported as possibly done', async (t) => {
  const instance = await scripted(t, (response) => response.destroy());
  const { code, stderr } = await new Cli(t, [instance.url]).run('servers');
  t.equal(code, 3);
  t.match(stderr, /Name an instance with --url/);
  t.notMatch(stderr, /may have been carried out/);
});
