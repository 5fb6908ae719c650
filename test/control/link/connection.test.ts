import { EventEmitter, once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import t from 'tap';
import { WebSocket, WebSocketServer } from 'ws';
import type { AgentSocket } from '../../../lib/control/link/agent-socket.ts';
import { AgentConnection, type ConnectionDeps } from '../../../lib/control/link/connection.ts';
import { SenderQuotas } from '../../../lib/control/link/sender-quotas.ts';
import { UnsentFrames } from '../../../lib/control/link/unsent-frames.ts';
import type { Session } from '../../../lib/control/roster/sessions/session.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import { systemClock } from '../../../lib/platform/time/clock.ts';
import { HealthyTimer } from '../../../lib/platform/time/healthy-timer.ts';
import { newMachine } from '../../support/scripted-agent.ts';
import { until } from '../../support/until.ts';

t.test('a peer that does not read is disconnected before its unsent data fills the memory', async (t) => {
  const { serverUuid } = newMachine();
  const broken: string[] = [];
  const handlers = {
    onBroken: (_connection: AgentConnection, _session: Session, reason: string) => broken.push(reason),
    onClosed: () => undefined,
  } as unknown as ConnectionDeps['handlers'];
  const healthyTimer = new HealthyTimer({ clock: systemClock, checkMs: 100 });
  const unsent = new UnsentFrames({ clock: systemClock, healthyTimer });
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => server.close());
  const links = new WebSocketServer({ server, perMessageDeflate: false });
  const peer = new WebSocket(`ws://127.0.0.1:${(server.address() as AddressInfo).port}/`);
  peer.on('error', () => undefined);
  const [[socket, request]] = await Promise.all([once(links, 'connection'), once(peer, 'open')]);
  const connection = new AgentConnection(
    { socket, stream: request.socket, serverUuid, quota: new SenderQuotas().join({ serverUuid }, 0) },
    {
      handlers,
      healthyTimer,
      counters: { framesRefused: 0, readsPaused: 0 },
      unsent,
      mayLog: () => true,
      clock: systemClock,
      log: silentLogger,
    },
  );
  connection.welcome({ serverUuid, epoch: 1 } as Session, { type: 'heartbeat', sequence: 1 });
  peer.pause();

  const frame = { type: 'error', code: 'unknown-type', message: 'x'.repeat(1024 * 1024) } as const;
  let taken = 0;
  let mostUnsent = 0;
  // What the kernel buffers for both ends is not bounded by us.
  while (taken < 500 && connection.send(frame)) {
    taken += 1;
    mostUnsent = Math.max(mostUnsent, unsent.bytes);
    await new Promise((resolve) => setImmediate(resolve));
  }
  t.same(broken, ['slow-reader']);
  t.ok(taken >= 16, `${taken} MiB taken`);
  t.ok(mostUnsent > 15 * 1024 * 1024, 'it counts in the sum of all connections');
  await until(() => !connection.isOpen);
  await until(() => unsent.bytes === 0, 'the sum to forget it');
  t.equal(connection.send(frame), false);
  t.same(broken, ['slow-reader'], 'it is reported once');
  peer.terminate();
});

t.test('a connection counts as one that does not read only while none of its bytes leave', async (t) => {
  const { serverUuid } = newMachine();
  const backedUp: AgentConnection[] = [];
  const handlers = {
    onBackedUp: (one: AgentConnection) => backedUp.push(one),
    onClosed: () => undefined,
  } as unknown as ConnectionDeps['handlers'];
  const healthyTimer = new HealthyTimer({ clock: systemClock, checkMs: 100 });
  const socket = Object.assign(new EventEmitter(), {
    bufferedAmount: 0,
    readyState: WebSocket.OPEN,
    send: () => undefined,
  }) as unknown as AgentSocket & EventEmitter & { bufferedAmount: number };
  const stream = Object.assign(new EventEmitter(), { bytesWritten: 1_000_000, write: () => true });
  const connection = new AgentConnection(
    { socket, stream, serverUuid, quota: new SenderQuotas().join({ serverUuid }, 0) },
    {
      handlers,
      healthyTimer,
      counters: { framesRefused: 0, readsPaused: 0 },
      unsent: { sent: () => undefined },
      mayLog: () => true,
      clock: systemClock,
      log: silentLogger,
    },
  );
  connection.welcome({ serverUuid, epoch: 1 } as Session, { type: 'heartbeat', sequence: 1 });
  const isCountedWith = (unsent: number) => {
    socket.bufferedAmount = unsent;
    backedUp.length = 0;
    socket.emit('message', Buffer.from('{"type":"heartbeat","sequence":1}'), false);
    return backedUp.length === 1;
  };
  t.notOk(isCountedWith(900_000), 'it may be moving');
  t.notOk(isCountedWith(800_000));
  stream.bytesWritten += 500_000;
  t.notOk(isCountedWith(1_200_000), 'more waits than before, and some has left');
  t.ok(isCountedWith(1_200_000), 'nothing has left for a whole period');
  t.ok(isCountedWith(1_200_000));
  t.notOk(isCountedWith(1_100_000));
  t.notOk(isCountedWith(0));
  socket.emit('close');
});
