/** An instance that leaves, as seen by callers with requests under way. */
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import t from 'tap';
import { systemClock } from '../../../../lib/platform/time/clock.ts';
import { until } from '../../../support/until.ts';
import { type Parts, SERVER, startApi } from '../support.ts';

const PING = 'GET /ping HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n';
const answersIn = (text: string) => text.split('HTTP/1.1 200 ').length - 1;

/** Sends the text at once. Resolves to what arrived before the connection was closed or lost. */
async function say(port: number, text: string): Promise<string> {
  const socket = connect({ host: '127.0.0.1', port });
  let heard = '';
  socket.setEncoding('utf8').on('data', (chunk: string) => {
    heard += chunk;
  });
  socket.on('error', (error: NodeJS.ErrnoException) => {
    heard += ` ${error.code}`;
  });
  socket.write(text);
  await new Promise((closed) => socket.once('close', closed));
  return heard;
}

/** The connections to a port of this machine that the kernel has accepted. */
function establishedAt(port: number): number {
  const local = `:${port.toString(16).toUpperCase().padStart(4, '0')}`;
  const rows = readFileSync('/proc/net/tcp', 'utf8').trim().split('\n');
  const isEstablished = ([, address, , state]: string[]) => address?.endsWith(local) === true && state === '01';
  return rows.filter((row) => isEstablished(row.trim().split(/\s+/))).length;
}

t.test('connections accepted by the kernel before the listener closes are answered', async (t) => {
  const { listener, port } = await startApi(t);
  listener.beginDrain();
  const callers = Array.from({ length: 20 }, () => say(port, PING));
  await new Promise<void>((resolve) => process.nextTick(resolve));
  // The kernel accepts them, perhaps later on a busy machine, and this process does not meanwhile.
  while (establishedAt(port) < callers.length);
  listener.stopAccepting();
  t.not(listener.unanswered, 0, 'not ready to leave yet');
  const heard = await Promise.all(callers);
  t.same(
    heard.filter((text) => answersIn(text) !== 1),
    [],
  );
  await until(() => listener.unanswered === 0, 'the listening sockets to close');
  t.match(await say(port, PING), 'ECONNREFUSED');
});

t.test('pipelined requests are all answered', async (t) => {
  const { listener, port } = await startApi(t);
  listener.beginDrain();
  const socket = connect({ host: '127.0.0.1', port });
  let heard = '';
  socket.setEncoding('utf8').on('data', (chunk: string) => {
    heard += chunk;
  });
  socket.write(PING.repeat(3));
  await until(() => answersIn(heard) === 3 || socket.closed, 'three answers');
  t.equal(answersIn(heard), 3);
  socket.write(PING);
  await until(() => socket.closed, 'the connection to be closed');
  t.equal(answersIn(heard), 4);
  t.match(heard, /Connection: close/, 'the last answer closes the connection');
});

t.test('a kept-alive connection is answered once more after the listening sockets closed', async (t) => {
  const { listener, port } = await startApi(t);
  const socket = connect({ host: '127.0.0.1', port });
  let heard = '';
  socket.setEncoding('utf8').on('data', (chunk: string) => {
    heard += chunk;
  });
  socket.write(PING);
  await until(() => answersIn(heard) === 1, 'an answer');
  t.match(heard, /Keep-Alive: timeout=4/, 'the answer says how long the connection is kept');
  listener.beginDrain();
  listener.stopAccepting();
  await until(() => listener.unanswered === 0, 'the listening sockets to close');
  socket.write(PING);
  await until(() => socket.closed, 'the connection to be closed');
  t.equal(answersIn(heard), 2);
});

t.test('an answer that its caller is reading when the instance stops is sent to its end', async (t) => {
  const notes = 'x'.repeat(16 * 1024 * 1024);
  const get = async () => ({ server: { uuid: SERVER, status: 'running', notes }, isRunning: true });
  const parts = { servers: { get } as unknown as Parts['servers'] };
  // The grace period ends only when all answers are sent, because the time to read this one depends
  // on the machine.
  const sleep = (_ms: number, signal?: AbortSignal) =>
    new Promise<void>((resolve) => signal?.addEventListener('abort', () => resolve()));
  const { listener, port } = await startApi(t, { parts, clock: { ...systemClock, sleep } });
  const socket = connect({ host: '127.0.0.1', port });
  socket.write(`GET /servers/${SERVER} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n`);
  await new Promise((readable) => socket.once('readable', readable));
  const stopped = listener.stop();
  let bytes = 0;
  socket.on('data', (chunk: Buffer) => {
    bytes += chunk.length;
  });
  await stopped;
  await until(() => socket.closed, 'the connection to be closed');
  t.ok(bytes > notes.length, `${bytes} bytes`);
});
