import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import t, { type Test } from 'tap';
import { WebSocket, WebSocketServer } from 'ws';
import { CallerStream } from '../../../lib/control/streams/caller-stream.ts';
import { CHANNELS, streamMessage } from '../../../lib/protocol/streams/stream.ts';
import { StreamSocket } from '../../../lib/protocol/streams/stream-socket.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import { until } from '../../support/until.ts';

/** A socket of this process and its other end at the stream. */
async function pairs(t: Test) {
  const server = new WebSocketServer({ port: 0, host: '127.0.0.1', perMessageDeflate: false });
  await once(server, 'listening');
  t.teardown(() => server.close());
  return async () => {
    const client = new WebSocket(`ws://127.0.0.1:${(server.address() as AddressInfo).port}`);
    const [[socket]] = (await Promise.all([once(server, 'connection'), once(client, 'open')])) as [
      [WebSocket],
      unknown,
    ];
    t.teardown(() => client.terminate());
    return { client, socket };
  };
}

/** A stream that its agent has joined. */
async function joined(t: Test) {
  const pair = await pairs(t);
  const clock = new ManualClock();
  const [caller, agent] = [await pair(), await pair()];
  const told: string[] = [];
  const stream = new CallerStream((events) => new StreamSocket(caller.socket, clock, events), {
    clock,
    serverUuid: 'a server',
    onEnded: () => told.push('ended'),
    onClosed: () => told.push('closed'),
  });
  stream.join(agent.socket);
  return { clock, caller, agent, told, stream };
}

t.test('a caller that breaks the protocol and does not answer the close is cut off', async (t) => {
  const { clock, caller, agent, told } = await joined(t);
  const received: string[] = [];
  agent.client.on('message', (message) => received.push(String(message)));
  caller.client.send('a text');
  caller.client.send(streamMessage(CHANNELS.stdin, 'more'));
  caller.client.pause();
  await until(() => agent.client.readyState === WebSocket.CLOSED, 'the end of the agent');
  t.same(told, ['ended']);
  await clock.advance(30_000);
  await until(() => told.includes('closed'), 'the end of its connection');
  t.same([told, received], [['ended', 'closed'], []]);
});

t.test('a stream that has ended is ended once, whatever comes afterwards', async (t) => {
  const { caller, agent, told, stream } = await joined(t);
  for (const { client } of [caller, agent]) client.terminate();
  await until(() => told.includes('closed'), 'the end');
  stream.terminate();
  t.same(told, ['ended', 'closed']);
});

t.test('a caller that has stopped reading is cut off ten minutes after the end of its agent', async (t) => {
  const { clock, caller, agent, told } = await joined(t);
  caller.client.pause();
  for (let sent = 0; sent < 200; sent += 1) agent.client.send(streamMessage(CHANNELS.stdout, Buffer.alloc(60_000)));
  agent.client.send(streamMessage(CHANNELS.status, '{}'));
  // The rest is not taken, so the connection breaks under it.
  await until(() => agent.client.bufferedAmount > 0);
  agent.client.terminate();
  await until(() => told.length > 0, 'the end');
  await clock.advance(599_000);
  t.same(told, ['ended']);
  await clock.advance(1_000);
  t.same(told, ['ended', 'closed']);
  await until(() => caller.socket.readyState === WebSocket.CLOSED, 'the end of its connection');
});
