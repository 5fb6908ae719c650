/** A caller that stops reading at the end, with the real ends of an instance and an agent. */
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { mock } from 'node:test';
import t from 'tap';
import { WebSocket } from 'ws';
import { AgentStreams } from '../../../lib/agent/streams/agent-streams.ts';
import { CallerStreams } from '../../../lib/control/streams/caller-streams.ts';
import { systemRandom } from '../../../lib/platform/random.ts';
import { CHANNELS } from '../../../lib/protocol/streams/stream.ts';
import { STREAM_SOCKET } from '../../../lib/protocol/streams/stream-socket.ts';
import { ManualClock } from '../../support/manual-clock.ts';

const serverUuid = randomUUID();
const MINUTES_MS = 60_000;

t.test('a caller that reads nothing for nine minutes at the end loses nothing', async (t) => {
  const clock = new ManualClock();
  const streams = new CallerStreams({ cnapiUuid: randomUUID(), clock, random: systemRandom });
  const http = createServer();
  http.on('upgrade', (request, socket, head) => {
    const name = request.url?.split('/streams/')[1];
    if (name === undefined) streams.open(request, { serverUuid, owner: 'one', socket, head });
    else streams.join(request, { name, serverUuid, socket, head });
  });
  await once(http.listen(0, '127.0.0.1'), 'listening');
  const { port } = http.address() as AddressInfo;
  t.teardown(() => http.close());
  const credentials = { credentialsTo: () => ({ tls: undefined, headers: {} }) };
  const agents = new AgentStreams({ clock, serverUuid, credentials: credentials as never });
  // All of it is in the network at the end, so that the instance closes after the agent.
  for (const bytes of [1_500_000, 3_000_000, 4_500_000]) {
    const caller = new WebSocket(
      `ws://127.0.0.1:${port}/servers/${serverUuid}/stream`,
      'cnapi.stream.v1',
      STREAM_SOCKET,
    );
    const closed = once(caller, 'close');
    const [greeting] = await once(caller, 'message');
    const stream = await agents.join({ name: JSON.parse(String(greeting)).stream, host: '127.0.0.1', port });
    caller.pause();
    const read = { bytes: 0, status: '' };
    caller.on('message', (message: Buffer) => {
      if (message[0] === CHANNELS.status) read.status = message.subarray(1).toString();
      else read.bytes += message.length - 1;
    });
    // ws has timers of its own.
    mock.timers.enable({ apis: ['setTimeout'] });
    for (let left = bytes; left > 0; left -= 60_000) stream.stdout.write(Buffer.alloc(60_000));
    const ended = stream.end({ exit_code: 0 }, { clock, signal: new AbortController().signal });
    for (let waitedMs = 0; waitedMs < 9 * MINUTES_MS; waitedMs += 1_000) {
      // Clients ping, too. A ping to a connection that no longer exists resets it and loses unread
      // data.
      if (waitedMs % 5_000 === 0) caller.ping();
      await clock.advance(1_000);
      mock.timers.tick(1_000);
    }
    mock.timers.reset();
    caller.resume();
    const [code] = await closed;
    await ended;
    t.same({ code, ...read }, { code: 1000, bytes, status: '{"exit_code":0}' });
  }
});
