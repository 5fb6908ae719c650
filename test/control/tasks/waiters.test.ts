/** Waits and event streams: prompt with the bus, correct without it, bounded, and always ended. */
import { randomUUID } from 'node:crypto';
import t, { type Test } from 'tap';
import type { RecordedTaskEvent } from '../../../lib/control/tasks/store/task.ts';
import { TaskNotFoundError } from '../../../lib/control/tasks/store/task-errors.ts';
import { cancelTask } from '../../../lib/control/tasks/store/task-store.ts';
import type { Database } from '../../../lib/platform/postgres/database.ts';
import { TooManyWaitersError, WaitStoppedError } from '../../../lib/platform/waits/wait-errors.ts';
import { MemoryHub } from '../../support/memory-bus.ts';
import { freshDatabase } from '../../support/postgres.ts';
import { until } from '../../support/until.ts';
import { FakeAgent, type Instance, type InstanceOptions, startInstance } from './support/fake-agents.ts';
import { migrations } from './support/task-database.ts';

const patience = { timeoutMs: 30_000 };

async function instances(t: Test, options: Partial<InstanceOptions> = {}) {
  const { database } = await freshDatabase(t, { migrations });
  const common = { database, hub: new MemoryHub(), ...options };
  const [a, b] = [await startInstance(t, common), await startInstance(t, common)];
  const agent = Object.assign(new FakeAgent(), { works: () => {} });
  await agent.connect(a);
  const create = async () => (await a.tasks.create({ serverUuid: agent.serverUuid, name: 'nop', params: {} })).id;
  const taken = async () => {
    const count = agent.received.length;
    const id = await create();
    await until(() => agent.received.length > count, 'the task');
    return id;
  };
  return { ...common, a, b, agent, create, taken };
}

async function collect(
  events: AsyncIterable<RecordedTaskEvent>,
  into: RecordedTaskEvent[] = [],
): Promise<RecordedTaskEvent[]> {
  for await (const event of events) into.push(event);
  return into;
}

/** Resets the task to its state on a standby that had received no later events. */
async function goBack(database: Database, id: string, lastSeq: number): Promise<void> {
  await database.query('delete from cnapi_task_events where task_id = $1::uuid and seq > $2::int', [id, lastSeq]);
  await database.query('update cnapi_tasks set last_seq = $2::int where id = $1::uuid', [id, lastSeq]);
}

const names = (events: RecordedTaskEvent[]) => events.map((event) => event.name);
const quiet = (instance: Instance) => {
  const { waits, follows } = instance.tasks.stats();
  // The channel of its run, and that of all ends once somebody has waited here; none of a single
  // task.
  return waits + follows === 0 && instance.bus.stats().topics <= 2;
};

t.test('a wait for an ended task answers at once, and one for an unknown task is refused', async (t) => {
  const { a, b, agent, taken } = await instances(t);
  const id = await taken();
  agent.complete(id);
  await a.tasks.wait(id, patience);
  t.match(await b.tasks.wait(id, patience), { outcome: 'complete' });
  await t.rejects(b.tasks.wait(randomUUID(), patience), TaskNotFoundError);
  t.ok(quiet(b), 'no watch is left');
});

t.test('a wait that times out serves the task in its current state', async (t) => {
  const { b, taken } = await instances(t);
  const id = await taken();
  t.match(await b.tasks.wait(id, { timeoutMs: 20 }), { id, outcome: null });
  t.match(await b.tasks.wait(id, { timeoutMs: 0 }), { id, outcome: null });
  t.ok(quiet(b));
});

t.test('when the instance leaves, waits answer as at their timeout and streams end for resumption', async (t) => {
  const { b, agent, taken } = await instances(t);
  const id = await taken();
  const leaving = new AbortController();
  const waiting = b.tasks.wait(id, { ...patience, endSignal: leaving.signal });
  const following = collect(b.tasks.follow(id, 0, { endSignal: leaving.signal }));
  await until(() => b.tasks.stats().waits + b.tasks.stats().follows === 2, 'both');
  leaving.abort();
  t.match(await waiting, { id, outcome: null });
  t.notOk(names(await following).includes('end'));
  t.match(await b.tasks.wait(id, { ...patience, endSignal: leaving.signal }), { outcome: null }, 'a later wait');
  agent.complete(id);
  await b.tasks.wait(id, patience);
  t.match(await b.tasks.wait(id, { ...patience, endSignal: leaving.signal }), { outcome: 'complete' });
  t.ok(quiet(b));
});

t.test('a wait ends with its caller and with its instance', async (t) => {
  const { a, b, taken } = await instances(t);
  const id = await taken();
  const caller = new AbortController();
  const left = b.tasks.wait(id, { ...patience, signal: caller.signal });
  caller.abort(new Error('gone'));
  await t.rejects(left, /gone/);
  await t.rejects(
    b.tasks.wait(id, { ...patience, signal: caller.signal }),
    /gone/,
    'even for a caller that is already gone',
  );
  t.ok(quiet(b));
  const cut = b.tasks.wait(id, patience);
  const followed = collect(b.tasks.follow(id, 0));
  const both = Promise.all([t.rejects(cut, WaitStoppedError), t.rejects(followed, WaitStoppedError)]);
  await b.tasks.stop();
  await both;
  await t.rejects(b.tasks.wait(id, patience), WaitStoppedError);
  t.match(await a.tasks.get(id), { outcome: null }, 'the task continues');
});

t.test('the slow poll finds an end that no message announced', async (t) => {
  const { b, agent, create } = await instances(t, { config: { slowPollMs: 50 } });
  agent.disconnect();
  const id = await create();
  const waiting = b.tasks.wait(id, patience);
  await until(() => b.tasks.stats().waits === 1, 'the wait');
  await cancelTask(b.database, id);
  t.match(await waiting, { outcome: 'failure' });
});

t.test('an end during a loss of the bus is found when the bus is back', async (t) => {
  const { a, b, agent, taken, hub } = await instances(t);
  const id = await taken();
  const waiting = b.tasks.wait(id, patience);
  hub.kill();
  await until(() => !a.bus.isHealthy() && !b.bus.isHealthy(), 'the bus to count as lost');
  agent.complete(id);
  await until(() => agent.acknowledged.length === 1, 'the acknowledgement');
  hub.restore();
  t.match(await waiting, { outcome: 'complete' });
});

t.test('without the bus, an end is found at once on the instance that stored it', async (t) => {
  const { a, agent, taken, hub } = await instances(t);
  const id = await taken();
  hub.kill();
  await until(() => !a.bus.isHealthy(), 'the bus to count as lost');
  const events: RecordedTaskEvent[] = [];
  const following = collect(a.tasks.follow(id, 0), events);
  following.catch(() => undefined);
  await until(() => names(events).includes('accepted'), 'the follower to wait');
  agent.complete(id);
  await until(() => names(events).includes('end'), 'the end');
  await following;
});

t.test('the number of waits is limited', async (t) => {
  const { b, taken } = await instances(t, { maxWaiters: 2 });
  const id = await taken();
  const held = [b.tasks.wait(id, { timeoutMs: 200 }), b.tasks.wait(id, { timeoutMs: 200 })];
  await t.rejects(b.tasks.wait(id, patience), TooManyWaitersError);
  await t.rejects(collect(b.tasks.follow(id, 0)), TooManyWaitersError);
  await Promise.all(held);
  t.match(await b.tasks.wait(id, { timeoutMs: 1 }), { outcome: null }, 'ended waits free their places');
});

t.test('a task can be followed live on another instance, from its first event to its end', async (t) => {
  const { b, agent, taken } = await instances(t);
  const id = await taken();
  const events: RecordedTaskEvent[] = [];
  const following = collect(b.tasks.follow(id, 0), events);
  await until(() => names(events).includes('accepted'), 'accepted');
  agent.event(id, { name: 'started' });
  await until(() => names(events).includes('started'), 'started');
  agent.event(id, { name: 'output', stream: 'stdout', offset: 0, text: 'one\n' });
  agent.event(id, { name: 'output', stream: 'stdout', offset: 4, text: 'two\n' });
  await until(() => names(events).includes('output'), 'output');
  agent.event(id, { name: 'progress', value: 50 });
  await until(() => names(events).includes('progress'), 'progress');
  agent.complete(id, { exit: 0 });
  await following;
  t.same(names(events), ['accepted', 'started', 'output', 'output', 'progress', 'end']);
  t.same(
    events.map((event) => event.seq),
    [1, 2, 3, 4, 5, 6],
  );
  t.match(events[2]?.data, { stream: 'stdout', offset: 0, text: 'one\n' });
  t.match(events[3]?.data, { stream: 'stdout', offset: 4, text: 'two\n' });
  t.match(events[5], { data: { status: 'complete', result: { exit: 0 } }, attempt: 1 });
  t.ok(quiet(b));
});

t.test('a task has a channel of its own while somebody follows it, and waits need none', async (t) => {
  const { b, agent, taken } = await instances(t);
  const id = await taken();
  const waits = [b.tasks.wait(id, patience)];
  await until(() => b.bus.stats().topics === 2, 'the channel of all ends');
  waits.push(b.tasks.wait(await taken(), { timeoutMs: 1 }));
  await waits.at(-1);
  t.equal(b.bus.stats().topics, 2, 'the channel of its run and that of all ends');
  const following = collect(b.tasks.follow(id, 0));
  await until(() => b.bus.stats().topics === 3, 'the channel of the task');
  agent.complete(id);
  await Promise.all([...waits, following]);
  t.ok(quiet(b));
});

t.test('a stream resumes where it was left, and ends at once if there is no more', async (t) => {
  const { b, agent, taken } = await instances(t);
  const id = await taken();
  agent.event(id, { name: 'started' });
  agent.complete(id);
  await b.tasks.wait(id, patience);
  t.same(names(await collect(b.tasks.follow(id, 1))), ['started', 'end']);
  t.same(await collect(b.tasks.follow(id, 3)), []);
  t.same(await collect(b.tasks.follow(id, 99)), []);
  await t.rejects(collect(b.tasks.follow(randomUUID(), 0)), TaskNotFoundError);
  t.ok(quiet(b));
});

t.test('an end is received although the database has gone back to an older state, as on a late standby', async (t) => {
  const { b, agent, taken, database } = await instances(t);
  const id = await taken();
  const events: RecordedTaskEvent[] = [];
  const waiting = b.tasks.wait(id, patience);
  const following = collect(b.tasks.follow(id, 0), events);
  agent.event(id, { name: 'started' });
  await until(() => names(events).includes('started'), 'started');
  await goBack(database, id, 0);
  agent.complete(id);
  t.match(await waiting, { outcome: 'complete' });
  await following;
  t.same(names(events), ['accepted', 'started'], 'the end has the number of an event that was read');
  t.ok(quiet(b));
});

t.test('a stream whose next event is missing waits for new ones and does not poll repeatedly', async (t) => {
  const { b, agent, taken, database } = await instances(t);
  const id = await taken();
  for await (const { name } of b.tasks.follow(id, 0)) if (name === 'accepted') break;
  await database.query('update cnapi_tasks set last_seq = 10 where id = $1::uuid', [id]);
  const asked = t.capture(database, 'query', database.query.bind(database));
  const following = collect(b.tasks.follow(id, 0));
  let pages = 0;
  const count = () => {
    pages += asked().filter(({ args }) => args[0].includes('cnapi_task_events')).length;
    return pages;
  };
  await until(() => count() > 1, 'the empty page');
  await new Promise((resolve) => setTimeout(resolve, 100));
  t.ok(count() < 10, `${pages} pages were asked for`);
  await goBack(database, id, 1);
  agent.complete(id);
  t.same(names(await following), ['accepted', 'end']);
});

t.test('a long stream is read page by page without gaps, and a reader may leave', async (t) => {
  const { b, agent, taken } = await instances(t);
  const id = await taken();
  for (let n = 0; n < 130; n++)
    agent.event(id, { name: 'output', stream: n % 2 ? 'stdout' : 'stderr', offset: n, text: `${n}` });
  agent.complete(id);
  const events = await collect(b.tasks.follow(id, 0));
  t.same(
    events.map((event) => event.seq),
    Array.from({ length: events.length }, (_, n) => n + 1),
  );
  t.same(
    events.flatMap(({ data }) => (data.text === undefined ? [] : [data.text])),
    Array.from({ length: 130 }, (_, n) => `${n}`),
  );
  for await (const event of b.tasks.follow(id, 0)) if (event.seq === 3) break;
  t.ok(quiet(b));
  const caller = new AbortController();
  const second = await taken();
  const following = collect(b.tasks.follow(second, 0, { signal: caller.signal }));
  await until(() => b.tasks.stats().follows === 1, 'the stream');
  caller.abort(new Error('gone'));
  await t.rejects(following, /gone/);
  t.ok(quiet(b));
});
