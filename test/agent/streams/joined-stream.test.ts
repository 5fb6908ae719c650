import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import t, { type Test } from 'tap';
import { WebSocket, WebSocketServer } from 'ws';
import { JoinedStream } from '../../../lib/agent/streams/joined-stream.ts';
import { CHANNELS } from '../../../lib/protocol/streams/stream.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import { until } from '../../support/until.ts';

const TIMED_OUT = new Error('the task has timed out');

/** A stream of the agent, and its caller, which reads nothing until it is resumed. */
async function joined(t: Test) {
  const server = new WebSocketServer({ port: 0, host: '127.0.0.1', perMessageDeflate: false });
  await once(server, 'listening');
  t.teardown(() => server.close());
  const socket = new WebSocket(`ws://127.0.0.1:${(server.address() as AddressInfo).port}`, {
    perMessageDeflate: false,
  });
  const [[caller]] = (await Promise.all([once(server, 'connection'), once(socket, 'open')])) as [[WebSocket], unknown];
  t.teardown(() => socket.terminate());
  caller.pause();
  const read = { bytes: 0, status: '', closed: false };
  caller.on('message', (message: Buffer) => {
    if (message[0] === CHANNELS.status) read.status = message.subarray(1).toString();
    else read.bytes += message.length - 1;
  });
  caller.on('close', () => {
    read.closed = true;
  });
  const clock = new ManualClock();
  return { clock, caller, read, stream: new JoinedStream(socket, clock) };
}

/** Writes as a pipe does, until it is told to stop; returns how many bytes it was. */
function fill(stream: JoinedStream): number {
  let bytes = 0;
  do bytes += 4000;
  while (stream.stdout.write(Buffer.alloc(4000)));
  return bytes;
}

t.test('the status comes after output that waited for a slow caller', async (t) => {
  const { clock, caller, read, stream } = await joined(t);
  const written = fill(stream);
  t.ok(stream.stdout.writableLength > 0, 'a part waits behind the socket');
  const ended = stream.end({ exit_code: 0 }, { clock, signal: new AbortController().signal });
  caller.resume();
  await ended;
  await until(() => read.closed, 'the end of the connection');
  t.match(read, { bytes: written, status: '{"exit_code":0}' });
});

t.test('a caller that does not take the output in time is told no exit code', async (t) => {
  const { clock, caller, read, stream } = await joined(t);
  // More than a connection between two sockets holds.
  for (let messages = 0; messages < 400; messages += 1) stream.stderr.write(Buffer.alloc(60_000));
  const aborting = new AbortController();
  const ended = stream.end({ exit_code: 0 }, { clock, signal: aborting.signal });
  aborting.abort(TIMED_OUT);
  await clock.advance(1_000);
  await ended;
  t.equal(stream.lost.reason, 'its caller did not read');
  caller.resume();
  await until(() => read.closed, 'the end of the connection');
  t.equal(read.status, '');
});
