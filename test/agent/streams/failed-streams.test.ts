/** What the caller of a stream is told when the work at the agent fails. */
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import t from 'tap';
import { WebSocket, WebSocketServer } from 'ws';
import { JoinedStream } from '../../../lib/agent/streams/joined-stream.ts';
import { runOnStream } from '../../../lib/agent/streams/run-on-stream.ts';
import { TaskFailure } from '../../../lib/agent/task-failure.ts';
import { CHANNELS } from '../../../lib/protocol/streams/stream.ts';
import { ManualClock } from '../../support/manual-clock.ts';

const uuid = '11111111-1111-4111-8111-111111111111';
const place = { name: `${uuid}.${uuid}`, host: '127.0.0.1', port: 1 };

t.test('a slow caller gets all output of work that fails, and then the reason', async (t) => {
  const server = new WebSocketServer({ port: 0, host: '127.0.0.1', perMessageDeflate: false });
  await once(server, 'listening');
  t.teardown(() => server.close());
  const socket = new WebSocket(`ws://127.0.0.1:${(server.address() as AddressInfo).port}`, {
    perMessageDeflate: false,
  });
  const [[caller]] = (await Promise.all([once(server, 'connection'), once(socket, 'open')])) as [[WebSocket], unknown];
  t.teardown(() => socket.terminate());
  caller.pause();
  const read = { bytes: 0, status: '' };
  caller.on('message', (message: Buffer) => {
    if (message[0] === CHANNELS.status) read.status = message.subarray(1).toString();
    else read.bytes += message.length - 1;
  });
  const closed = once(caller, 'close');
  const clock = new ManualClock();
  const stream = new JoinedStream(socket, clock);
  const streams = { join: async () => stream } as never;
  const ended = runOnStream(place, { clock, signal: new AbortController().signal, streams }, async ({ stdout }) => {
    // More than a connection between two sockets holds.
    for (let messages = 0; messages < 400; messages += 1) stdout.write(Buffer.alloc(60_000));
    throw new TaskFailure('VmNotRunning', 'the VM stopped');
  });
  const refused = t.rejects(ended, { code: 'VmNotRunning' });
  await clock.advance(60_000);
  caller.resume();
  await Promise.all([closed, refused]);
  t.same(read, { bytes: 400 * 60_000, status: '{"error":{"code":"VmNotRunning","message":"the VM stopped"}}' });
});
