import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import t from 'tap';
import { WebSocket, WebSocketServer } from 'ws';
import { StreamSocket } from '../../../lib/protocol/streams/stream-socket.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import { until } from '../../support/until.ts';

const HOUR_MS = 3_600_000;

t.test('a reader that pauses for days keeps its connection', async (t) => {
  const server = new WebSocketServer({ port: 0, host: '127.0.0.1' });
  await once(server, 'listening');
  t.teardown(() => server.close());
  const peer = new WebSocket(`ws://127.0.0.1:${(server.address() as AddressInfo).port}`);
  const [[socket]] = (await Promise.all([once(server, 'connection'), once(peer, 'open')])) as [[WebSocket], unknown];
  t.teardown(() => peer.terminate());
  const clock = new ManualClock();
  let pongs = 0;
  let pings = 0;
  socket.on('pong', () => {
    pongs += 1;
  });
  peer.on('ping', () => {
    pings += 1;
  });
  const closed: string[] = [];
  const stream = new StreamSocket(socket, clock, {
    message: () => undefined,
    drained: () => undefined,
    closed: (reason) => closed.push(reason),
  });
  peer.pause();
  await clock.advance(100 * HOUR_MS);
  stream.send(Buffer.from('last'));
  const received = Promise.race([once(peer, 'message'), once(peer, 'close')]);
  peer.resume();
  t.equal(String((await received)[0]), 'last');
  t.ok(pings > 10 && pings <= 50, `${pings} pings`);
  await until(() => pongs === pings, 'the answers');
  for (const _ of [1, 2]) {
    const before = pings;
    await clock.advance(5_000);
    await until(() => pings === before + 1, 'a ping every five seconds again');
    await until(() => pongs === pings, 'its answer');
  }
  t.same(closed, []);
});
