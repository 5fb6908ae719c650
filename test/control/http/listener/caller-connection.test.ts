/**
 * Several requests on one connection, of which one is refused or is not a request (RFC 9112, 9.3
 * and 9.6).
 */
import { createServer } from 'node:http';
import { connect, type Socket } from 'node:net';
import t, { type Test } from 'tap';
import { SLOW_READER_MS } from '../../../../lib/control/http/answer/write-bounded.ts';
import { systemClock } from '../../../../lib/platform/time/clock.ts';
import { until } from '../../../support/until.ts';
import { type Api, type ApiOptions, SERVER, startApi, UNKNOWN_UUID } from '../support.ts';

const HOST = 'Host: localhost\r\n';
const post = (headers: string, body = '') => `POST /servers/${SERVER}/nop HTTP/1.1\r\n${headers}\r\n${body}`;
const nop = post(`${HOST}Content-Length: 0\r\n`);
const foreign = post('Host: evil.example\r\nContent-Length: 0\r\n');
const get = (path: string, headers = '') => `GET ${path} HTTP/1.1\r\n${HOST}${headers}\r\n`;
const upgrade = get(`/agents/${SERVER}/link`, 'Connection: Upgrade\r\nUpgrade: websocket\r\n');
const garbage = 'no HTTP at all\r\n\r\n';

/** A connection that its owner keeps open when the other side closes. */
interface Caller {
  socket: Socket;
  statuses(): number[];
  text(): string;
  isOver(): boolean;
}

function callerOf(t: Test, { port }: Api, bytes: string): Caller {
  let text = '';
  let isOver = false;
  const over = () => {
    isOver = true;
  };
  const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
  if (bytes !== '') socket.write(bytes);
  socket.on('data', (chunk) => (text += chunk));
  socket.on('error', over).on('end', over).on('close', over);
  t.teardown(() => socket.destroy());
  const statuses = () => [...text.matchAll(/HTTP\/1\.1 (\d+) /g)].map(([, status]) => Number(status));
  return { socket, statuses, text: () => text, isOver: () => isOver };
}

/** All statuses that come until the connection ends. */
async function statusesOf(t: Test, api: Api, bytes: string): Promise<number[]> {
  const caller = callerOf(t, api, bytes);
  await until(caller.isOver, `the connection to end: ${bytes.slice(0, 200)}`);
  return caller.statuses();
}

async function startWithTask(t: Test, options: ApiOptions = {}) {
  const api = await startApi(t, options);
  await api.addServer(SERVER);
  const { id } = await api.tasks.create({ serverUuid: SERVER, name: 'nop', params: {} });
  api.tasks.created.length = 0;
  const task = await api.tasks.get(id);
  const end = () => {
    task.outcome = 'complete';
  };
  return { ...api, wait: get(`/tasks/${id}/wait?timeout=600`), follow: get(`/tasks/${id}/events`), end };
}

t.test('nothing is carried out behind a request that is refused for its head', async (t) => {
  const api = await startWithTask(t);
  const rows: [name: string, refused: string, status: number][] = [
    ['a foreign Host', foreign, 403],
    ['a foreign Origin', post(`${HOST}Origin: http://evil.example\r\nContent-Length: 0\r\n`), 403],
    ['another transfer coding', post(`${HOST}Transfer-Encoding: gzip, chunked\r\n`, '0\r\n\r\n'), 400],
    ['an ambiguous path', get('/a/../ping'), 400],
    ['a long URL', get(`/${'x'.repeat(9000)}`), 414],
    ['an unknown expectation', post(`${HOST}Expect: all\r\nContent-Length: 0\r\n`), 417],
    ['a body', post('Host: evil.example\r\nContent-Length: 4\r\n', 'abcd'), 403],
  ];
  for (const [name, refused, status] of rows) {
    t.same(await statusesOf(t, api, refused + nop + nop), [status], name);
    t.same(await statusesOf(t, api, refused + refused), [status], `${name}, twice`);
    t.same(await statusesOf(t, api, refused + upgrade), [status], `${name}, before an upgrade`);
    t.same(await statusesOf(t, api, refused + garbage), [status], `${name}, before garbage`);
  }
  t.equal(api.tasks.created.length, 0);
  t.same(api.upgrades, []);
  t.same(await statusesOf(t, api, nop + foreign + nop), [200, 403], 'the one before it is answered');
  t.equal(api.tasks.created.length, 1);
  await until(() => api.listener.unanswered === 0, 'all requests to end');
});

t.test('a refusal waits for the answers before it, and nothing that comes meanwhile is carried out', async (t) => {
  const api = await startWithTask(t);
  const caller = callerOf(t, api, api.wait + foreign + nop);
  await until(() => api.tasks.waiting === 1, 'the wait to begin');
  caller.socket.write(nop + upgrade + post(`${HOST}Content-Length: 200000\r\n`, 'x'.repeat(200_000)) + garbage);
  await t.rejects(until(caller.isOver, 'the end', 300));
  t.same(caller.statuses(), []);
  api.end();
  await until(caller.isOver, 'the connection to end');
  t.same(caller.statuses(), [200, 403]);
  t.match(caller.text(), /Connection: keep-alive[\s\S]*Connection: close/);
  t.equal(api.tasks.created.length, 0);
  t.same(api.upgrades, []);
  await until(() => api.listener.unanswered === 0, 'all requests to end');
});

t.test('a refused connection that sends very many requests is cut off', async (t) => {
  const api = await startWithTask(t);
  t.same(await statusesOf(t, api, api.wait + foreign + nop.repeat(100)), []);
  await until(() => api.tasks.waiting === 0, 'its wait to end');
  t.equal(api.tasks.created.length, 0);
});

t.test('nothing is carried out behind an answer that ends its connection', async (t) => {
  const api = await startWithTask(t);
  const size = 1_100_000;
  const chunked = `${size.toString(16)}\r\n${'x'.repeat(size)}\r\n0\r\n\r\n`;
  const large = `POST /loglevel HTTP/1.1\r\n${HOST}Transfer-Encoding: chunked\r\n\r\n${chunked}`;
  t.same(await statusesOf(t, api, large + nop), [413]);
  t.equal(api.tasks.created.length, 0);
});

t.test('a valid request has its own answer, and garbage behind it has 400', async (t) => {
  const api = await startWithTask(t);
  const broken = post(`${HOST}Transfer-Encoding: chunked\r\n`, 'zz\r\n');
  const rows: [name: string, next: string][] = [
    ['garbage', garbage],
    ['two Content-Length', post(`${HOST}Content-Length: 0\r\nContent-Length: 1\r\n`)],
    ['a broken chunk', broken],
  ];
  for (const [name, next] of rows) {
    const before = api.tasks.created.length;
    t.same(await statusesOf(t, api, nop + next), [200, 400], name);
    t.same(await statusesOf(t, api, nop + next + nop), [200, 400], `${name}, and more behind it`);
    t.equal(api.tasks.created.length - before, 2, name);
  }
  t.same(await statusesOf(t, api, broken + nop), [400], 'the first request is broken');
});

t.test('garbage behind a request that waits is answered after it', async (t) => {
  for (const next of [garbage, post(`${HOST}Transfer-Encoding: chunked\r\n`, 'zz\r\n')]) {
    const api = await startWithTask(t);
    const caller = callerOf(t, api, api.wait + next);
    await until(() => api.tasks.waiting === 1, 'the wait to begin');
    caller.socket.write(garbage);
    await t.rejects(until(() => caller.isOver() || caller.text() !== '', 'anything', 300));
    api.end();
    await until(caller.isOver, 'the connection to end');
    t.same(caller.statuses(), [200, 400]);
    t.equal(api.tasks.created.length, 0);
  }
});

t.test('a caller that leaves while garbage waits for its answer ends its wait', async (t) => {
  const api = await startWithTask(t);
  const caller = callerOf(t, api, api.wait + garbage);
  await until(() => api.tasks.waiting === 1, 'the wait to begin');
  caller.socket.destroy();
  await until(() => api.tasks.waiting === 0 && api.listener.unanswered === 0, 'its wait to end');
});

t.test('garbage behind an event stream cuts it off', async (t) => {
  const api = await startWithTask(t);
  t.strictSame((await statusesOf(t, api, api.follow + garbage)).slice(1), []);
  await until(() => api.listener.unanswered === 0, 'the stream to end');
});

t.test('bytes behind a request with Connection: close are ignored', async (t) => {
  const api = await startWithTask(t);
  const last = post(`${HOST}Connection: close\r\nContent-Length: 0\r\n`);
  t.same(await statusesOf(t, api, last + garbage), [200]);
  t.same(await statusesOf(t, api, last + nop), [200]);
  t.equal(api.tasks.created.length, 2);
});

t.test('a caller that ends its side is answered, but not waited for', async (t) => {
  const api = await startWithTask(t);
  const rows: [name: string, bytes: string, statuses: number[]][] = [
    ['one request', nop, [200]],
    ['two requests', nop + nop, [200, 200]],
    ['half a request', `${nop}POST /x HT`, [200, 400]],
    ['garbage', nop + garbage, [200, 400]],
    ['a refusal', nop + foreign, [200, 403]],
    ['a wait', api.wait, []],
    ['a stream', api.follow, []],
  ];
  for (const [name, bytes, statuses] of rows) {
    const caller = callerOf(t, api, '');
    caller.socket.end(bytes);
    await until(caller.isOver, `the connection to end: ${name}`);
    t.same(name === 'a stream' ? [] : caller.statuses(), statuses, name);
    await until(() => api.listener.unanswered === 0, `its requests to end: ${name}`);
  }
  const caller = callerOf(t, api, api.wait);
  await until(() => api.tasks.waiting === 1, 'the wait to begin');
  caller.socket.end();
  await until(() => api.tasks.waiting === 0, 'the wait to end');
});

t.test('a connection is kept after an error of one request', async (t) => {
  const api = await startWithTask(t);
  const wrong = [
    get('/nope'),
    get('/servers/zzz'),
    get(`/servers/${UNKNOWN_UUID}`),
    post(`${HOST}Content-Length: 1\r\n`, '{'),
  ];
  const caller = callerOf(t, api, wrong.join('') + nop);
  await until(() => caller.statuses().length === 5, 'five answers');
  caller.socket.write(nop);
  await until(() => caller.statuses().length === 6, 'another answer');
  t.same(caller.statuses(), [404, 409, 404, 400, 200, 200]);
  t.notOk(caller.isOver());
  t.equal(api.tasks.created.length, 2);
});

const canChoose = 'shouldUpgradeCallback' in createServer();
t.test('an upgrade behind an unanswered request is not answered before it', async (t) => {
  const api = await startWithTask(t);
  const caller = callerOf(t, api, api.wait + upgrade);
  if (canChoose) {
    await until(() => api.tasks.waiting === 1, 'the wait to begin');
    api.end();
    await until(() => caller.statuses().length === 2, 'both answers');
    t.same(caller.statuses(), [200, 426]);
  } else await until(caller.isOver, 'the connection to be cut off');
  t.same(api.upgrades, []);
});

t.test('an upgrade is accepted after other requests on its connection', async (t) => {
  const api = await startWithTask(t);
  const caller = callerOf(t, api, nop);
  await until(() => caller.statuses().length === 1, 'an answer');
  caller.socket.write(upgrade);
  await until(() => caller.statuses().length === 2, 'the upgrade');
  t.same(caller.statuses(), [200, 101]);
});

t.test('CONNECT behind requests that wait ends all of them', async (t) => {
  const api = await startWithTask(t);
  const caller = callerOf(t, api, api.wait.repeat(3));
  await until(() => api.tasks.waiting === 3, 'the waits to begin');
  caller.socket.write(`CONNECT localhost:1 HTTP/1.1\r\n${HOST}\r\n`);
  await until(() => api.tasks.waiting === 0 && api.listener.unanswered === 0, 'the waits to end');
});

t.test('an answer that breaks off behind another cuts off the connection in its turn', async (t) => {
  const api = await startWithTask(t);
  let reads = 0;
  api.tasks.history = async () => {
    if (++reads > 1) throw new Error('the database is gone');
    return { rows: [], next: { id: SERVER, createdAt: 'x' } };
  };
  const caller = callerOf(t, api, api.wait + get(`/servers/${SERVER}/task-history`) + nop);
  await until(() => reads === 2 && api.listener.unanswered === 2, 'the list to break off');
  api.end();
  await until(caller.isOver, 'the connection to end');
  t.same(caller.statuses(), [200]);
});

t.test('a refused caller that reads nothing is cut off', async (t) => {
  const comments = 'x'.repeat(15_000);
  const clock = {
    ...systemClock,
    after: (ms: number, work: () => void) => systemClock.after(ms === SLOW_READER_MS ? 200 : ms, work),
  };
  for (const next of [garbage, foreign]) {
    const api = await startWithTask(t, { clock });
    await api.call('POST', `/servers/${SERVER}`, { comments });
    const caller = callerOf(t, api, '');
    caller.socket.pause();
    const isIdle = () => api.listener.unanswered === 0;
    for (let isRead = true; isRead; ) {
      caller.socket.write(get(`/servers/${SERVER}`).repeat(16));
      await until(() => !isIdle(), 'the requests to arrive');
      isRead = await until(isIdle, 'the answers to be taken', 1000).then(
        () => true,
        () => false,
      );
    }
    caller.socket.write(next);
    await until(isIdle, 'the connection to be cut off');
  }
});
