/** Several instances over one real database and a bus in memory; agents without sockets. */
import t from 'tap';
import type { TaskRequest } from '../../../lib/control/tasks/store/task.ts';
import { IdempotencyConflictError, TaskUnknownError } from '../../../lib/control/tasks/store/task-errors.ts';
import { DatabaseUnavailableError } from '../../../lib/platform/errors.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import type { Database } from '../../../lib/platform/postgres/database.ts';
import { migrate } from '../../../lib/platform/postgres/migrations.ts';
import { WaitStoppedError } from '../../../lib/platform/waits/wait-errors.ts';
import { encodeFrame, parseInstanceFrame } from '../../../lib/protocol/link/codec.ts';
import { matchLists } from '../../support/match-lists.ts';
import { MemoryHub } from '../../support/memory-bus.ts';
import { FILE_TIMEOUT_MS } from '../../support/patience.ts';
import { freshDatabase, openDatabase, startTestPostgres } from '../../support/postgres.ts';
import { until } from '../../support/until.ts';
import { FakeAgent, Instance, startInstance } from './support/fake-agents.ts';
import { migrations, row } from './support/task-database.ts';
import { holding, nop, patience, threeInstances, untilRow } from './support/three-instances.ts';

t.setTimeout(FILE_TIMEOUT_MS);

/** Creates a task on an instance and waits for it there. */
async function run({ tasks }: Instance, request: TaskRequest) {
  const { id } = await tasks.create(request);
  return tasks.wait(id, patience);
}

t.test('a task created on one instance runs on the agent of another and is awaited on a third', async (t) => {
  const { a, b, c } = await threeInstances(t);
  const agent = new FakeAgent();
  agent.works = ({ id, params }) => agent.complete(id, { echo: params });
  await agent.connect(b);
  const { id, created } = await a.tasks.create(nop(agent, { params: { x: 1 }, requestId: 'req-9' }));
  t.equal(created, true);
  const task = await c.tasks.wait(id, patience);
  matchLists(t, task, {
    outcome: 'complete',
    req_id: 'req-9',
    result: { echo: { x: 1 } },
  });
  matchLists(t, agent.received, [
    { id, attempt: 1, epoch: 1, name: 'nop', params: { x: 1 }, timeoutMs: 3_600_000, requestId: 'req-9' },
  ]);
  await until(() => agent.acknowledged.length === 1, 'the acknowledgement');
});

t.test('a timeout of 24 days, as earlier versions accepted, is sent as the longest an agent supports', async (t) => {
  const { a } = await threeInstances(t);
  const agent = new FakeAgent();
  await agent.connect(a);
  t.match(await run(a, nop(agent, { timeoutMs: 24 * 86_400_000 })), { outcome: 'complete' });
  const [frame] = agent.received;
  t.ok(frame && parseInstanceFrame(encodeFrame(frame)));
  t.equal(frame?.timeoutMs, 86_400_000);
});

t.test('many waits for many tasks on all instances end', async (t) => {
  const { a, b, c } = await threeInstances(t);
  const agent = new FakeAgent();
  await agent.connect(a);
  const ids = await Promise.all(
    Array.from({ length: 40 }, async (_, n) => (await (n % 2 ? b : c).tasks.create(nop(agent))).id),
  );
  const tasks = await Promise.all(ids.flatMap((id) => [a, b, c].map((instance) => instance.tasks.wait(id, patience))));
  t.ok(tasks.every((task) => task.outcome === 'complete'));
  t.same(agent.received.map((frame) => frame.id).sort(), [...ids].sort(), 'each task was sent once');
  matchLists(
    t,
    [a, b, c].map((instance) => instance.tasks.stats().waits),
    [0, 0, 0],
  );
});

t.test('with the bus gone everything still happens, within the slow poll', async (t) => {
  const { a, b, c, hub } = await threeInstances(t, { slowPollNoBusMs: 100 });
  hub.kill();
  await until(() => ![a, b, c].some((instance) => instance.bus.isHealthy()), 'the bus to count as lost');
  const agent = new FakeAgent();
  await agent.connect(b);
  const { id } = await a.tasks.create(nop(agent));
  t.match(await c.tasks.wait(id, patience), { outcome: 'complete' });
});

t.test('after a lost task frame the same attempt is sent again', async (t) => {
  const { a } = await threeInstances(t, { slowPollMs: 50, taskResendMs: 100 });
  const agent = new FakeAgent();
  let lost = 0;
  agent.loses = () => ++lost === 1;
  await agent.connect(a);
  t.match(await run(a, nop(agent)), { outcome: 'complete', attempt: 1 });
  t.ok(agent.received.every(({ attempt }) => attempt === 1));
  t.ok(lost >= 2, 'twice if storing the acceptance took long');
});

t.test('all lost frames are sent again in one slow poll', async (t) => {
  const { a, database } = await threeInstances(t);
  const agent = new FakeAgent();
  agent.loses = () => true;
  await agent.connect(a);
  const ids = await Promise.all(Array.from({ length: 250 }, async () => (await a.tasks.create(nop(agent))).id));
  for (const id of ids) await untilRow(database, id, (task) => task.state === 'claimed');
  await database.query(`update cnapi_tasks set sent_at = sent_at - interval '6 s'`);
  agent.loses = () => false;
  a.tasks.trigger();
  for (const id of ids) t.match(await a.tasks.wait(id, patience), { outcome: 'complete', attempt: 1 });
});

t.test('when an instance dies after the claim, the task continues at another instance and ends there', async (t) => {
  const { a, b, c } = await threeInstances(t);
  const agent = holding(new FakeAgent());
  await agent.connect(a);
  const { id } = await c.tasks.create(nop(agent));
  const waiting = c.tasks.wait(id, patience);
  await until(() => agent.received.length === 1, 'the task');
  await a.die();
  await agent.connect(b);
  agent.complete(id, { from: 'b' });
  matchLists(t, await waiting, { outcome: 'complete', attempt: 1, result: { from: 'b' } });
});

t.test('when an instance dies between claim and send, the task starts elsewhere as the next attempt', async (t) => {
  const { a, b } = await threeInstances(t);
  const agent = new FakeAgent();
  agent.loses = ({ epoch }) => epoch === 1;
  await agent.connect(a);
  const { id } = await b.tasks.create(nop(agent));
  const waiting = b.tasks.wait(id, patience);
  await untilRow(b.database, id, (task) => task.state === 'claimed');
  await a.die();
  await agent.connect(b);
  t.match(await waiting, { outcome: 'complete', attempt: 2 });
  matchLists(t, agent.received, [{ id, attempt: 2, epoch: 2 }]);
});

t.test('an end that was never acknowledged is recorded by the next instance', async (t) => {
  const { a, b } = await threeInstances(t);
  const agent = holding(new FakeAgent());
  await agent.connect(a);
  const { id } = await b.tasks.create(nop(agent));
  await until(() => agent.received.length === 1, 'the task');
  agent.disconnect();
  agent.complete(id, { while: 'away' });
  await agent.connect(b);
  matchLists(t, await b.tasks.wait(id, patience), { outcome: 'complete', result: { while: 'away' } });
  await until(() => agent.acknowledged.length === 1, 'the acknowledgement');
});

t.test('after a lost journal the outcome is unknown, unless the task is idempotent', async (t) => {
  const { a, b } = await threeInstances(t);
  const agent = holding(new FakeAgent());
  await agent.connect(a);
  const once = await a.tasks.create(nop(agent, { idempotent: false }));
  const again = await a.tasks.create(nop(agent, { idempotent: true }));
  await until(() => agent.received.length === 2, 'both');
  agent.loseJournal();
  agent.works = ({ id }) => agent.complete(id);
  await agent.connect(b);
  matchLists(t, await a.tasks.wait(once.id, patience), {
    outcome: 'failure',
    error: { code: 'OutcomeUnknown' },
  });
  t.match(await a.tasks.wait(again.id, patience), { outcome: 'complete', attempt: 2 });
});

t.test('one idempotency key makes one task, and is refused with another body', async (t) => {
  const { a, b } = await threeInstances(t);
  const agent = new FakeAgent();
  await agent.connect(a);
  const request = nop(agent, { params: { one: 1, two: { x: 1, y: 2 } }, idempotencyKey: 'key' });
  const first = await a.tasks.create(request);
  const second = await b.tasks.create({ ...request, params: { two: { y: 2, x: 1 }, one: 1 } });
  t.same([first.created, second], [true, { id: first.id, created: false }]);
  await t.rejects(b.tasks.create({ ...request, params: {} }), IdempotencyConflictError);
  await b.tasks.wait(first.id, patience);
  t.match(await b.tasks.create(request), { id: first.id, created: false }, 'the key finds it after its end too');
  t.equal(agent.received.length, 1);
});

t.test('a request whose answer was lost finds its task by the key, whatever happened to the server', async (t) => {
  const { a, b } = await threeInstances(t);
  const request = nop(new FakeAgent(), { idempotencyKey: 'k' });
  t.equal(await b.tasks.findByIdempotencyKey(request), undefined);
  const { id } = await a.tasks.create(request);
  t.equal(await b.tasks.findByIdempotencyKey(request), id);
  t.equal(await b.tasks.findByIdempotencyKey({ ...request, idempotencyKey: 'other' }), undefined);
  await t.rejects(b.tasks.findByIdempotencyKey({ ...request, params: { sleep: 1 } }), IdempotencyConflictError);
});

t.test('a task that no agent takes ends', async (t) => {
  const { a, b } = await threeInstances(t, { slowPollMs: 50, taskStartByMs: 200 });
  const { id } = await a.tasks.create(nop(new FakeAgent()));
  matchLists(t, await b.tasks.wait(id, patience), {
    outcome: 'failure',
    error: { code: 'NotTaken', message: 'the server did not take the task' },
  });
});

t.test(
  'a cancel of a task the agent does not have is refused by its session and ends the task elsewhere',
  async (t) => {
    const { a, b } = await threeInstances(t);
    const agent = new FakeAgent();
    await agent.connect(a);
    await t.rejects(a.tasks.create(nop(agent, { name: 'no_such' })), TaskUnknownError);
    const task = await run(b, nop(agent, { name: 'no_such' }));
    matchLists(t, task, {
      outcome: 'failure',
      error: { code: 'UnknownTask' },
    });
    t.equal(agent.received.length, 0);
  },
);

t.test(
  'an end from an instance that lost its session counts, and repeated or unknown ends are acknowledged',
  async (t) => {
    const { a, b } = await threeInstances(t);
    const agent = holding(new FakeAgent());
    await agent.connect(a);
    const { id } = await b.tasks.create(nop(agent));
    await until(() => agent.received.length === 1, 'the task');
    agent.complete(id);
    agent.repeatEnds();
    agent.complete(crypto.randomUUID());
    await until(() => agent.acknowledged.length >= 2 && agent.journal.size === 0, 'all acknowledgements');
    t.match(await b.tasks.get(id), { outcome: 'complete' });
  },
);

t.test('a stale run claims nothing', async (t) => {
  const { a, b, database } = await threeInstances(t, { slowPollMs: 50 });
  const [agent, ghost] = [new FakeAgent(), new FakeAgent()];
  await agent.connect(a);
  const stale = [...a.held];
  await agent.connect(b);
  for (const [serverUuid, session] of stale) a.held.set(serverUuid, session);
  b.held.delete(agent.serverUuid);
  const { id } = await a.tasks.create(nop(agent));
  await ghost.connect(a);
  t.match(await run(a, nop(ghost)), { outcome: 'complete' }, 'claims have been made');
  t.match(await row(database, id), { state: 'queued', attempt: 0 });
});

t.test('an inventory given during a change of run is settled once the row has moved', async (t) => {
  const { a, b, database } = await threeInstances(t, { slowPollMs: 50 });
  const agent = new FakeAgent();
  agent.loses = ({ epoch }) => epoch === 1;
  await agent.connect(a);
  const { id } = await b.tasks.create(nop(agent));
  await untilRow(database, id, (task) => task.state === 'claimed');
  const former = b.uuid;
  b.uuid = crypto.randomUUID();
  await agent.connect(b, former);
  await until(() => b.tasks.stats().inventories === 1, 'the inventory to be left over');
  await database.query('update cnapi_roster_authority set run = $2::uuid where server_uuid = $1::uuid', [
    agent.serverUuid,
    b.uuid,
  ]);
  t.match(await a.tasks.wait(id, patience), { outcome: 'complete', attempt: 2 });
  await until(() => b.tasks.stats().inventories === 0, 'nothing left over');
});

t.test('a locked queued task is claimed once the lock is released, without the slow poll', async (t) => {
  const { a, b, database } = await threeInstances(t, { slowPollMs: 600_000 });
  const agent = new FakeAgent();
  const { id } = await b.tasks.create(nop(agent));
  await database.transaction(async (connection) => {
    await connection.query('select 1 from cnapi_tasks where id = $1::uuid for update', [id]);
    await agent.connect(a);
    const other = await b.tasks.create(nop(agent));
    t.match(await b.tasks.wait(other.id, patience), { outcome: 'complete' }, 'its server was claimed for');
    t.match(await row(database, id), { state: 'queued' }, 'the task was skipped');
  });
  t.match(await b.tasks.wait(id, patience), { outcome: 'complete', attempt: 1 });
});

t.test('more tasks than one claim gives are all taken', async (t) => {
  const { a, b } = await threeInstances(t);
  const agent = new FakeAgent();
  const ids = await Promise.all(Array.from({ length: 250 }, async () => (await b.tasks.create(nop(agent))).id));
  await agent.connect(a);
  const tasks = await Promise.all(ids.map((id) => b.tasks.wait(id, patience)));
  t.ok(tasks.every((task) => task.outcome === 'complete' && task.attempt === 1));
});

t.test('one unreadable task does not keep others from being sent', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  let unreadable: string | undefined;
  const failing: Database = Object.create(database, {
    query: {
      value: async (text: string, values?: readonly unknown[]) => {
        const isRead =
          text.includes('order by given.place') &&
          (values?.[0] as unknown[] | undefined)?.includes(unreadable) === true;
        if (isRead) throw new Error('missing chunk of a toast value');
        return database.query(text, values);
      },
    },
  });
  const a = await startInstance(t, { database: failing, hub: new MemoryHub() });
  const agent = new FakeAgent();
  const ids = await Promise.all(Array.from({ length: 7 }, async () => (await a.tasks.create(nop(agent))).id));
  unreadable = ids[3] as string;
  await agent.connect(a);
  for (const id of ids) if (id !== unreadable) t.match(await a.tasks.wait(id, patience), { outcome: 'complete' });
  t.match(await row(database, unreadable), { state: 'claimed' });

  // The slow poll continues as well: attempts that are sent again come after it.
  await database.query(`update cnapi_tasks set sent_at = sent_at - interval '6 s' where id = $1::uuid`, [unreadable]);
  agent.loses = () => true;
  const late = await a.tasks.create(nop(agent));
  await untilRow(database, late.id, (task) => task.state === 'claimed');
  await database.query(`update cnapi_tasks set sent_at = sent_at - interval '6 s' where id = $1::uuid`, [late.id]);
  agent.loses = () => false;
  a.tasks.trigger();
  t.match(await a.tasks.wait(late.id, patience), { outcome: 'complete' });
  unreadable = undefined;
  await database.query(`update cnapi_tasks set sent_at = sent_at - interval '6 s' where state = 'claimed'`);
  a.tasks.trigger();
  t.match(await a.tasks.wait(ids[3] as string, patience), { outcome: 'complete', attempt: 1 });
});

t.test('a stop takes a moment even if the database does not answer', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const gate = Promise.withResolvers<void>();
  let isFrozen = false;
  const frozen: Database = Object.create(database, {
    query: {
      value: async (text: string, values?: readonly unknown[]) => {
        if (isFrozen) await gate.promise;
        return database.query(text, values);
      },
    },
  });
  const a = await startInstance(t, { database: frozen, hub: new MemoryHub(), config: { slowPollMs: 20 } });
  t.teardown(() => gate.resolve());
  const agent = holding(new FakeAgent());
  await agent.connect(a);
  const { id } = await a.tasks.create(nop(agent));
  await until(() => agent.received.length === 1, 'the task');
  isFrozen = true;
  const waiting = a.tasks.wait(id, patience);
  waiting.catch(() => {});
  a.tasks.hintSessions([agent.serverUuid]);
  agent.complete(id);
  await a.tasks.stop();
  await t.rejects(waiting, WaitStoppedError);
});

t.test('a database outage loses nothing, and waits continue', async (t) => {
  const server = await startTestPostgres({ fast: false });
  t.teardown(() => server.close());
  const database = openDatabase(server.url, { connectTimeoutMs: 500 });
  await migrate(database, migrations, { log: silentLogger });
  const hub = new MemoryHub();
  const [a, b] = [new Instance({ database, hub }), new Instance({ database, hub })];
  for (const instance of [a, b]) {
    await instance.bus.start();
    await instance.tasks.start();
  }
  t.teardown(async () => {
    await Promise.all([a.stop(), b.stop()]);
    await database.stop();
  });
  const agent = holding(new FakeAgent());
  await agent.connect(a);
  const { id } = await a.tasks.create(nop(agent));
  await until(() => agent.received.length === 1, 'the task');
  const waiting = b.tasks.wait(id, patience);
  await server.stop();
  agent.complete(id, { during: 'outage' });
  await t.rejects(a.tasks.create(nop(agent)), DatabaseUnavailableError);
  const later = b.tasks.wait(id, patience);
  t.same(agent.acknowledged, [], 'an end that is not recorded is not acknowledged');
  await server.start();
  matchLists(t, await waiting, { outcome: 'complete', result: { during: 'outage' } });
  t.match(await later, { outcome: 'complete' });
  await until(() => agent.acknowledged.length === 1, 'the acknowledgement');
});
