/** How much memory of an instance answers may hold, and what callers beyond the limit get. */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import t from 'tap';
import { STREAM_BYTES } from '../../../../lib/control/http/answer/event-stream.ts';
import { ROW_STREAM_BYTES } from '../../../../lib/control/http/answer/row-stream.ts';
import {
  AnswerMemoryFullError,
  AnswerShareFullError,
  answerBudget,
} from '../../../../lib/control/http/limits/answer-budget.ts';
import { listTasks } from '../../../../lib/control/tasks/store/task-store.ts';
import { systemRandom } from '../../../../lib/platform/random.ts';
import { until } from '../../../support/until.ts';
import { queuedRow } from '../../tasks/support/queued-row.ts';
import { type Api, type Parts, SERVER, startApi } from '../support.ts';
import { startWithTokens } from '../with-tokens.ts';

const MEBIBYTE = 1024 * 1024;

t.test('an answer budget is held and released, and never refuses the only answer', async (t) => {
  const budget = answerBudget({ maxBytes: 100, maxBytesPerCaller: 60 });
  const [first, second, other] = [budget.open('a'), budget.open('a'), budget.open('b')];
  first.hold(500);
  t.equal(budget.held, 500, 'larger than the budget, but the only one');
  t.throws(() => second.hold(1), AnswerShareFullError);
  t.throws(() => other.hold(1), AnswerMemoryFullError);
  other.holdAnyway(10);
  t.equal(budget.held, 510);
  for (const share of [first, first, other]) share.release();
  t.equal(budget.held, 0, 'a second release has no effect');
  second.hold(60);
  second.hold(40);
  t.equal(budget.held, 60, 'a share counts its largest answer');
  t.throws(() => budget.open('a').hold(1), { statusCode: 429, code: 'AnswerShareFull', message: /PerCallerMiB/ });
  budget.open('b').hold(40);
  t.throws(() => budget.open('c').hold(1), { statusCode: 503, code: 'AnswerMemoryFull', retryAfterSeconds: 1 });
  t.equal(budget.refused, 4);
  const stream = budget.open('d');
  second.release();
  stream.resize(60);
  stream.resize(10);
  t.equal(budget.held, 50, 'a stream holds its current size, beside the 40 of the other share');
});

t.test('an answer that is larger than what was reserved for it is refused only beside others', async (t) => {
  const budget = answerBudget({ maxBytes: 100, maxBytesPerCaller: 60 });
  const answer = budget.open('a');
  answer.hold(10);
  answer.hold(500);
  t.equal(budget.held, 500, 'larger than the budget, but the only one');
  answer.release();
  const [first, second, other] = [budget.open('a'), budget.open('a'), budget.open('b')];
  for (const share of [first, second]) share.hold(10);
  t.throws(() => first.hold(51), AnswerShareFullError);
  second.release();
  other.hold(10);
  t.throws(() => first.hold(91), AnswerMemoryFullError);
  other.release();
  first.hold(91);
  t.equal(budget.held, 91);
});

t.test('an event stream counts what its reader has not read, and is refused when there is no room', async (t) => {
  const event = { kind: 'task', storedAt: new Date(), body: { text: 'x'.repeat(300_000) } };
  const told = Array.from({ length: 40 }, (_, n) => ({ position: String(n), event }));
  const follow = async function* (signal: AbortSignal) {
    yield* told;
    await once(signal, 'abort');
  };
  const events = { follow: async (_filter: unknown, _after: unknown, signal: AbortSignal) => follow(signal) };
  const parts = { events: events as unknown as Parts['events'] };
  const { port, call, limits } = await startApi(t, { parts, config: { answerMemoryMiB: 1 } });
  const socket = connect(port, '127.0.0.1', () => socket.write('GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n'));
  socket.pause();
  await until(() => limits.answers.held >= STREAM_BYTES + 300_000, 'an unread event');
  t.ok(limits.answers.held < MEBIBYTE, `${limits.answers.held} bytes`);
  const others = limits.answers.open('others');
  others.hold(MEBIBYTE - limits.answers.held);
  t.match(await call('GET', '/events'), { status: 503, body: { code: 'AnswerMemoryFull' } });
  socket.destroy();
  others.release();
  await until(() => limits.answers.held === 0, 'all memory to be released');
});

t.test('twelve concurrent task histories of a thousand tasks are complete and hold little memory', async (t) => {
  const api = await startApi(t);
  const { call, limits, chunks } = await withTasks(api, 1000, 20_000);
  let most = 0;
  const watch = setInterval(() => (most = Math.max(most, limits.answers.held)), 1);
  t.teardown(() => clearInterval(watch));
  const answers = await Promise.all(
    Array.from({ length: 12 }, () => call('GET', `/servers/${SERVER}/task-history?limit=1000`)),
  );
  for (const { status, body } of answers) {
    t.equal(status, 200);
    t.equal(body.length, 1000);
    t.equal(new Set(body.map(({ id }: { id: string }) => id)).size, 1000, 'no task twice');
  }
  t.ok(answers[0] !== undefined && answers[0].text.length > 20 * MEBIBYTE - MEBIBYTE);
  t.ok(most <= 12 * ROW_STREAM_BYTES, `at most ${most} bytes held`);
  t.ok(Math.max(...chunks) <= 2 * MEBIBYTE, `at most ${Math.max(...chunks)} bytes read at once`);
  await until(() => limits.answers.held === 0, 'all memory to be released');
  t.equal((await call('GET', `/servers/${SERVER}/task-history?limit=7`)).body.length, 7);
});

t.test('a connection that is cut for pipelining too much releases the memory of its requests', async (t) => {
  const { port, limits, listener } = await startApi(t);
  const request = `GET /${'x'.repeat(3_000)} HTTP/1.1\r\nHost: localhost\r\n\r\n`;
  const socket = connect(port, '127.0.0.1', () => socket.write(request.repeat(17)));
  socket.on('error', () => undefined);
  socket.resume();
  await new Promise((resolve) => socket.once('close', resolve));
  await until(() => listener.unanswered === 0, 'its requests to end');
  await until(() => limits.answers.held === 0, 'their memory to be released');
});

t.test('when slow readers use all answer memory, other callers get 503 and later an answer', async (t) => {
  const api = await startApi(t, { config: { answerMemoryMiB: 3 } });
  const { call, port, limits } = await withTasks(api, 1000, 20_000);
  const path = `/servers/${SERVER}/task-history?limit=1000`;
  const slow: Socket[] = [];
  for (let index = 0; index < 3; index += 1) {
    const socket = connect(port, '127.0.0.1', () => socket.write(`GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`));
    socket.pause().on('error', () => undefined);
    t.teardown(() => socket.destroy());
    slow.push(socket);
  }
  await until(() => limits.answers.held >= 3 * ROW_STREAM_BYTES, 'all memory to be held');
  const refused = await call('GET', path);
  t.match(refused, { status: 503, body: { code: 'AnswerMemoryFull', message: /answerMemoryMiB/ } });
  t.equal(refused.headers.get('retry-after'), '1');
  t.equal((await call('GET', '/ping')).status, 200, 'health checks are answered');
  t.equal((await call('GET', '/servers?limit=1')).status, 503, 'lists are refused');
  t.equal((await call('GET', `/servers/${SERVER}`)).status, 200, 'small answers are served');
  t.equal(limits.answers.refused, 2);
  for (const socket of slow) socket.destroy();
  await until(() => limits.answers.held === 0, 'the memory to be released');
  t.equal((await call('GET', path)).body.length, 1000);
});

t.test('one caller cannot use up the memory for answers', async (t) => {
  const api = await startWithTokens(t, { answerMemoryPerCallerMiB: 1 });
  await withTasks(api, 1000, 20_000);
  const [one, other] = [await api.as('operator'), await api.as('operator')];
  const path = `/servers/${SERVER}/task-history?limit=1000`;
  const socket = connect(api.port, '127.0.0.1', () =>
    socket.write(`GET ${path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${one.token}\r\n\r\n`),
  );
  socket.pause().on('error', () => undefined);
  t.teardown(() => socket.destroy());
  await until(() => api.limits.answers.held > 0, 'its memory to be held');
  t.match(await api.call('GET', path, undefined, one.headers), { status: 429, body: { code: 'AnswerShareFull' } });
  t.equal((await api.call('GET', path, undefined, other.headers)).status, 200);
});

t.test('a list of large servers has each server once, in order', async (t) => {
  const { call, addServer, servers } = await startApi(t);
  const uuids = Array.from({ length: 60 }, () => systemRandom.uuid()).sort();
  for (const [index, uuid] of uuids.entries()) {
    await addServer(uuid, { sysinfo: { filler: 'x'.repeat(index % 7 === 0 ? 300_000 : 10) } });
    await servers.recordReport(uuid, { vms: { [uuid]: { uuid, filler: systemRandom.uuid().repeat(500) } } });
  }
  const listed = async (query: string) =>
    ((await call('GET', `/servers?${query}`)).body as { uuid: string }[]).map(({ uuid }) => uuid);
  t.same(await listed('extras=all'), uuids);
  t.same(await listed(''), uuids);
  t.same(await listed('extras=all&limit=40&offset=7'), uuids.slice(7, 47), 'no fewer than the limit');
  t.same(await listed('extras=sysinfo&offset=59'), uuids.slice(59));
  t.same(await listed('offset=60'), []);
  t.same(await listed(`extras=all&uuids=${uuids.slice(3, 50).join(',')}`), uuids.slice(3, 50));
});

t.test('a list whose reading fails midway is cut off, not ended early', async (t) => {
  let reads = 0;
  const broken = async () => {
    if (++reads > 1) throw new Error('the database is gone');
    return { rows: [ROW], next: { id: ROW.id, createdAt: 'x' } };
  };
  const api = await startApi(t);
  api.tasks.history = broken;
  await api.addServer(SERVER);
  await t.rejects(api.call('GET', `/servers/${SERVER}/task-history`));
  t.match(
    await api.call('GET', `/servers/${SERVER}/task-history`),
    { status: 500 },
    'a failure at the beginning is a 500',
  );
});

const ROW = queuedRow({ id: SERVER, server_uuid: SERVER });

/**
 * The API over this many real tasks, each with this many bytes of parameters that hardly compress.
 */
async function withTasks<Some extends Api>(api: Some, count: number, bytes: number) {
  const { database } = api.database;
  await api.addServer(SERVER);
  await database.query(
    `insert into cnapi_tasks (id, server_uuid, name, params, timeout_ms, idempotent, state, created_at, queued_at, request_hash)
     select gen_random_uuid(), $1::uuid, 'nop',
       json_build_object('filler', (select string_agg(md5(random()::text || piece), '') from generate_series(1, $3::int / 32) piece)),
       1000, false, 'queued', cnapi_now() - n * interval '1 s', cnapi_now(), ''
     from generate_series(1, $2::int) n`,
    [SERVER, count, bytes],
  );
  const chunks: number[] = [];
  api.tasks.history = async (serverUuid, size, after) => {
    const chunk = await listTasks(database, serverUuid, size, after);
    chunks.push(JSON.stringify(chunk.rows).length);
    return chunk;
  };
  return { ...api, chunks };
}
