import { EventEmitter } from 'node:events';
import t from 'tap';
import type { WebSocket } from 'ws';
import { InventoriedSessions } from '../../../lib/control/link/inventoried-sessions.ts';
import { KeyedCoalescer } from '../../../lib/control/link/keyed-coalescer.ts';
import { Pings } from '../../../lib/control/link/pings.ts';
import { type Session, SessionTable } from '../../../lib/control/roster/sessions/session.ts';
import { HealthyTimer } from '../../../lib/platform/time/healthy-timer.ts';
import type { InstanceFrame } from '../../../lib/protocol/link/frames.ts';
import { idleSocket } from '../../support/idle-socket.ts';
import { ManualClock } from '../../support/manual-clock.ts';

t.test('a task frame goes to the socket of its session, whatever its type, until the session ends', async (t) => {
  const sessions = new SessionTable();
  const sent: InstanceFrame[] = [];
  const socket = idleSocket({ send: (frame) => sent.push(frame) > 0 });
  const fields = { serverUuid: 's', epoch: 1, incarnation: 'i', journalId: 'j', capabilities: new Set<string>() };
  const session = sessions.add({ ...fields, socket, run: 'r', heardAt: 0 })?.session as Session;
  session.isInventoried = true;
  const found = new InventoriedSessions({ sessions, run: () => 'r', unsent: { isFull: false } }).get('s');
  const ack: InstanceFrame = { type: 'task_ack', id: 'one', attempt: 1 };
  t.equal(found?.send(ack), true);
  sessions.end(session);
  t.equal(found?.send(ack), false);
  t.same(sent, [ack]);
});

t.test('of work that supersedes itself one piece runs at a time, and then the latest', async (t) => {
  const latest = new KeyedCoalescer<string>();
  const done: number[] = [];
  const gate = Promise.withResolvers<void>();
  for (const n of [1, 2, 3]) {
    latest.run('one', async () => {
      await gate.promise;
      done.push(n);
    });
  }
  latest.run('other', async () => void done.push(0));
  gate.resolve();
  await new Promise((resolve) => setImmediate(resolve));
  t.same(done, [0, 1, 3], 'work of another key does not wait for it');
  latest.run('one', async () => void done.push(4));
  t.same(done, [0, 1, 3, 4], 'the next piece starts at once when nothing runs');
});

t.test('only a pong to a ping sent after the question counts, with a deadline in healthy ticks', async (t) => {
  const clock = new ManualClock();
  const healthyTimer = new HealthyTimer({ clock, checkMs: 250 });
  healthyTimer.start();
  const sent: string[] = [];
  const socket = Object.assign(new EventEmitter(), { ping: (data: string) => sent.push(data) });
  const pings = new Pings({ socket: socket as unknown as WebSocket, healthyTimer });
  pings.send();
  const answers: boolean[] = [];
  void pings.ask(1000).then((isAlive) => answers.push(isAlive));
  socket.emit('pong', Buffer.from(sent[0] ?? ''));
  await clock.stall(5000);
  t.same(answers, [], 'an old answer and the time of a stall do not count');
  socket.emit('pong', Buffer.from(sent[1] ?? ''));
  await clock.advance(0);
  t.same(answers, [true]);
  void pings.ask(1000).then((isAlive) => answers.push(isAlive));
  await clock.advance(1000);
  t.same(answers, [true, false]);
  void pings.ask(1000).then((isAlive) => answers.push(isAlive));
  pings.end();
  await clock.advance(0);
  t.same(answers, [true, false, false]);
});
