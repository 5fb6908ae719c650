/** Whether another incarnation of a server is alive, asked here or of another instance. */
import t from 'tap';
import { ProbeCaller } from '../../../../lib/control/roster/accept/probe.ts';
import type { RunMessage } from '../../../../lib/control/roster/run-message.ts';
import { SessionTable } from '../../../../lib/control/roster/sessions/session.ts';
import { runTopic } from '../../../../lib/control/run-topic.ts';
import type { Bus, BusMessage } from '../../../../lib/platform/bus/bus.ts';
import { systemRandom } from '../../../../lib/platform/random.ts';
import { idleSocket } from '../../../support/idle-socket.ts';
import { ManualClock } from '../../../support/manual-clock.ts';

/** An instance on a bus that the test confirms and answers. */
function setUp({ answers = true } = {}) {
  const clock = new ManualClock();
  const sessions = new SessionTable();
  const published: { topic: string; message: BusMessage }[] = [];
  const subscriptions = new Map<string, { receive: (message: BusMessage) => void; ready: () => void }>();
  const probes: number[] = [];
  const bus = {
    publish: (topic: string, message: BusMessage) => published.push({ topic, message }),
    subscribe(topic: string, receive: (message: BusMessage) => void, ready: () => void) {
      subscriptions.set(topic, { receive, ready });
      return { close: () => subscriptions.delete(topic) };
    },
  } as unknown as Bus;
  const answersProbe = async (withinMs: number) => {
    probes.push(withinMs);
    return answers;
  };
  const fields = { serverUuid: 'a', epoch: 3, incarnation: 'i', journalId: 'j', capabilities: new Set<string>() };
  const added = sessions.add({ ...fields, run: 'mine', heardAt: 0, socket: idleSocket({ answersProbe }) });
  const caller = new ProbeCaller({ bus, sessions, run: () => 'mine', healthyTimer: clock, random: systemRandom });
  return { added, caller, clock, probes, published, subscriptions };
}

t.test('a session of this instance is alive if it has that epoch and answers', async (t) => {
  const { added, caller, probes, published } = setUp();
  t.ok(await caller.isAlive('a', { run: 'mine', epoch: 3 }));
  t.same(probes, [1_000]);
  t.notOk(await caller.isAlive('a', { run: 'mine', epoch: 2 }));
  t.notOk(await caller.isAlive('b', { run: 'mine', epoch: 3 }));
  if (added !== undefined) added.session.isEnded = true;
  t.notOk(await caller.isAlive('a', { run: 'mine', epoch: 3 }));
  t.equal(probes.length, 1, 'only the session of that epoch is probed');
  t.notOk(await setUp({ answers: false }).caller.isAlive('a', { run: 'mine', epoch: 3 }));
  t.same(published, []);
});

t.test('another instance is asked once its answer can be received', async (t) => {
  const { caller, clock, published, subscriptions } = setUp();
  const asking = caller.isAlive('a', { run: 'other', epoch: 3 });
  const [[reply = '', subscription] = []] = subscriptions;
  t.same(published, []);
  subscription?.ready();
  const message: RunMessage = { kind: 'probe', server_uuid: 'a', epoch: 3, reply };
  t.same(published, [{ topic: runTopic('other'), message }]);
  subscription?.receive({ alive: 'yes' });
  subscription?.receive({});
  t.equal(subscriptions.size, 1, 'other messages are not an answer');
  subscription?.receive({ alive: true });
  t.ok(await asking);
  t.equal(subscriptions.size, 0);
  t.equal(clock.timers, 0);
});

t.test('no answer within a second is not a sign of life', async (t) => {
  const { caller, clock, subscriptions } = setUp();
  const asking = caller.isAlive('a', { run: 'other', epoch: 3 });
  await clock.advance(999);
  t.equal(subscriptions.size, 1);
  await clock.advance(1);
  t.notOk(await asking);
  t.equal(subscriptions.size, 0);
});

t.test('another instance is answered only if the session is alive', async (t) => {
  const { caller, published } = setUp();
  const message = { kind: 'probe', server_uuid: 'a', epoch: 3, reply: 'probe:x' } as const;
  await caller.answer({ ...message, epoch: 4 });
  t.same(published, []);
  await caller.answer(message);
  t.same(published, [{ topic: 'probe:x', message: { alive: true } }]);
});
