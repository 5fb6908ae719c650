/**
 * Cancels, over several instances, one real database and a bus in memory; agents without sockets.
 */
import t from 'tap';
import { TaskEndedError, TaskNotFoundError } from '../../../lib/control/tasks/store/task-errors.ts';
import { matchLists } from '../../support/match-lists.ts';
import { MemoryHub } from '../../support/memory-bus.ts';
import { FILE_TIMEOUT_MS } from '../../support/patience.ts';
import { freshDatabase } from '../../support/postgres.ts';
import { until } from '../../support/until.ts';
import { FakeAgent, startInstance } from './support/fake-agents.ts';
import { backdate, migrations, setUnknown } from './support/task-database.ts';
import { holding, nop, patience, threeInstances, untilRow } from './support/three-instances.ts';

t.setTimeout(FILE_TIMEOUT_MS);

t.test('a task can be cancelled in every state', async (t) => {
  const { a, b, c, database } = await threeInstances(t);
  const agent = holding(new FakeAgent());
  const cancelled = {
    outcome: 'failure',
    error: { code: 'Cancelled' },
  };
  const early = await b.tasks.create(nop(agent));
  t.match(await c.tasks.cancel(early.id), cancelled, 'a queued task is cancelled at once');
  await agent.connect(a);
  const late = await b.tasks.create(nop(agent));
  await untilRow(database, late.id, (task) => task.accepted_at !== null);
  const waiting = b.tasks.wait(late.id, patience);
  t.match(
    await c.tasks.cancel(late.id),
    { outcome: null, cancel_requested_at: Date },
    'a claimed task is asked to end',
  );
  t.match(await waiting, cancelled, 'its agent ends it');
  await t.rejects(c.tasks.cancel(late.id), TaskEndedError, 'an ended task has nothing to cancel');
  await t.rejects(c.tasks.cancel(crypto.randomUUID()), TaskNotFoundError);
  matchLists(t, agent.cancels, [{ id: late.id, attempt: 1 }]);
});

t.test('a cancel of a locked task is sent once the lock is released, without the slow poll', async (t) => {
  const { a, b, database } = await threeInstances(t, { slowPollMs: 600_000 });
  const agent = holding(new FakeAgent());
  await agent.connect(a);
  const { id } = await b.tasks.create(nop(agent));
  await untilRow(database, id, (task) => task.accepted_at !== null);
  await database.query('update cnapi_tasks set cancel_requested_at = cnapi_now() where id = $1::uuid', [id]);
  await database.transaction(async (connection) => {
    await connection.query('select 1 from cnapi_tasks where id = $1::uuid for update', [id]);
    const other = await b.tasks.create(nop(agent));
    await untilRow(database, other.id, (task) => task.accepted_at !== null);
    t.same(agent.cancels, [], 'its server was claimed for, and the task was skipped');
  });
  await until(() => agent.cancels.length > 0, 'the cancel');
  matchLists(t, agent.cancels, [{ id, attempt: 1 }]);
});

t.test('a cancel requested while the agent is away reaches it at its next session', async (t) => {
  const { a, b, database } = await threeInstances(t);
  const agent = holding(new FakeAgent());
  await agent.connect(a);
  const { id } = await b.tasks.create(nop(agent));
  await untilRow(database, id, (task) => task.accepted_at !== null);
  agent.disconnect();
  await b.tasks.cancel(id);
  await agent.connect(b);
  matchLists(t, await a.tasks.wait(id, patience), {
    outcome: 'failure',
    error: { code: 'Cancelled' },
  });
});

t.test("a step ahead of the database's clock ends no task that still has time", async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const a = await startInstance(t, { database, hub: new MemoryHub() });
  const agent = holding(new FakeAgent());
  await agent.connect(a);
  const accepted = async (timeoutMs: number) => {
    const { id } = await a.tasks.create(nop(agent, { timeoutMs }));
    await untilRow(database, id, (task) => task.accepted_at !== null);
    return id;
  };
  const isCancelled = (id: string) => until(() => agent.cancels.some((cancel) => cancel.id === id), 'its cancel');
  const before = await accepted(60_000);
  await backdate(database, before, 121_000);
  a.tasks.trigger();
  await isCancelled(before);
  const [running, late] = [await accepted(60_000), await accepted(60_000)];
  await database.query(
    `create or replace function cnapi_now() returns timestamptz language sql stable
       as $$ select clock_timestamp() + interval '1 hour' $$`,
  );
  await backdate(database, late, 121_000);
  a.tasks.trigger();
  await isCancelled(late);
  const after = await accepted(60_000);
  await a.tasks.cancel(after);
  await isCancelled(after);
  t.notOk(
    agent.cancels.some(({ id }) => id === running),
    'its agent has counted no minute',
  );
  t.match(await a.tasks.get(running), { outcome: null });
});

t.test('an agent is told to cancel a task that ended while it was away', async (t) => {
  const { a, b, database } = await threeInstances(t, { slowPollMs: 50, taskOverdueMs: 400 });
  const agent = holding(new FakeAgent());
  await agent.connect(a);
  const { id } = await a.tasks.create(nop(agent, { timeoutMs: 60_000 }));
  await untilRow(database, id, (task) => task.accepted_at !== null);
  agent.disconnect();
  await setUnknown(database, agent.serverUuid);
  await backdate(database, id, 120_000);
  matchLists(t, await b.tasks.wait(id, patience), {
    outcome: 'failure',
    error: { code: 'TaskTimeout' },
  });
  await agent.connect(b);
  await until(() => agent.cancels.length > 0, 'the cancel');
  await until(() => agent.acknowledged.includes(id), 'the acknowledgement of the late end');
  matchLists(t, await a.tasks.get(id), {
    error: { code: 'TaskTimeout' },
  });
});
