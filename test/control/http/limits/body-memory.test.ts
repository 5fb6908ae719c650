/**
 * How much memory bodies that are being received may use, and what callers beyond the limit get.
 */
import { connect } from 'node:net';
import t from 'tap';
import { bodyMemory } from '../../../../lib/control/http/limits/body-memory.ts';
import { until } from '../../../support/until.ts';
import { SERVER } from '../support.ts';
import { startWithTokens } from '../with-tokens.ts';

const MEBIBYTE = 1024 * 1024;

t.test('unfinished bodies of one caller are refused beyond 32 MiB, until they end', async (t) => {
  const { port, call, as, addServer, limits } = await startWithTokens(t);
  await addServer(SERVER);
  const one = await as('agent', SERVER);
  const other = await as('agent', SERVER);
  const almost = Buffer.alloc(MEBIBYTE - 1, ' ');
  const head = [
    `POST /servers/${SERVER}/sysinfo HTTP/1.1`,
    'Host: localhost',
    `Authorization: Bearer ${one.token}`,
    'Content-Type: application/json',
    `Content-Length: ${MEBIBYTE}`,
  ].join('\r\n');
  const answers: string[] = [];
  const sockets = Array.from({ length: 34 }, () => {
    const socket = connect(port, '127.0.0.1');
    socket.on('error', () => undefined).on('data', (bytes) => answers.push(String(bytes)));
    socket.write(`${head}\r\n\r\n`);
    socket.write(almost);
    return socket;
  });
  t.teardown(() => sockets.map((socket) => socket.destroy()));
  await until(() => answers.length >= 1, 'a refusal');
  t.match(answers[0], /^HTTP\/1.1 429 .*retry-after: 1.*32 MiB of bodies from this caller/is);
  await until(() => limits.bodyMemory.held > 31 * MEBIBYTE, 'the other bodies to arrive');
  t.ok(limits.bodyMemory.held <= 32 * MEBIBYTE, `${limits.bodyMemory.held} bytes are held`);
  t.ok(limits.bodyMemory.refused >= 1);
  const sysinfo = { sysinfo: { UUID: SERVER, filler: 'x'.repeat(2_000) } };
  const post = async ({ headers }: typeof one) =>
    (await call('POST', `/servers/${SERVER}/sysinfo`, sysinfo, headers)).status;
  t.not(await post(other), 429, 'another caller has its own share');
  for (const socket of sockets) socket.destroy();
  await until(() => limits.bodyMemory.held === 0, 'the memory to be free');
});

t.test('all callers together have 128 MiB', async (t) => {
  const memory = bodyMemory();
  for (const caller of ['a', 'b', 'c', 'd']) memory.open(caller).hold(32 * MEBIBYTE);
  t.throws(() => memory.open('e').hold(1), { statusCode: 503, retryAfterSeconds: 1, message: /128 MiB of bodies/ });
  t.throws(() => memory.open('a').hold(1), { statusCode: 429, message: /32 MiB of bodies from this caller/ });
});
