/** How fast tasks are sent: as fast as the agent accepts them, and its link takes them. */
import t from 'tap';
import { MemoryHub } from '../../../support/memory-bus.ts';
import { FILE_TIMEOUT_MS } from '../../../support/patience.ts';
import { freshDatabase } from '../../../support/postgres.ts';
import { until } from '../../../support/until.ts';
import { FakeAgent, startInstance } from '../support/fake-agents.ts';
import { migrations, row } from '../support/task-database.ts';
import { nop, patience, threeInstances, untilRow } from '../support/three-instances.ts';

t.setTimeout(FILE_TIMEOUT_MS);

t.test('large tasks are sent as the agent accepts them', async (t) => {
  const { a } = await threeInstances(t);
  const agent = new FakeAgent();
  let isDeaf = true;
  agent.loses = () => isDeaf;
  await agent.connect(a);
  const params = { text: 'x'.repeat(900_000) };
  const ids = await Promise.all(
    Array.from({ length: 20 }, async () => (await a.tasks.create(nop(agent, { params }))).id),
  );
  await until(() => a.tasks.stats().sent > 0, 'the first');
  t.ok(a.tasks.stats().sent <= 5, 'no more than fits');
  isDeaf = false;
  await a.database.query(`update cnapi_tasks set sent_at = sent_at - interval '6 s'`);
  a.tasks.trigger();
  for (const id of ids) t.match(await a.tasks.wait(id, patience), { outcome: 'complete', attempt: 1 });
});

t.test('nothing is sent, and nothing sent again, over a link that is backed up, until it has room', async (t) => {
  const { a, database } = await threeInstances(t, { slowPollMs: 50, taskResendMs: 100 });
  const [slow, other] = [new FakeAgent(), new FakeAgent()];
  slow.loses = () => true;
  const lost = new Set<string>();
  other.loses = ({ id }) => lost.size < lost.add(id).size;
  await slow.connect(a);
  await other.connect(a);
  const unaccepted = await a.tasks.create(nop(slow));
  await untilRow(database, unaccepted.id, (task) => task.state === 'claimed');
  /** A poll that sends again what this server has lost. */
  const pollThatSendsAgain = async () => {
    const { id } = await a.tasks.create(nop(other));
    t.match(await a.tasks.wait(id, patience), { outcome: 'complete' });
  };
  slow.unsent = () => 1;
  await pollThatSendsAgain();
  let arrived = 0;
  slow.loses = () => ++arrived > 0;
  const queued = await a.tasks.create(nop(slow));
  await pollThatSendsAgain();
  t.equal(arrived, 0);
  t.match(await row(database, queued.id), { state: 'queued' });
  slow.unsent = () => 0;
  slow.loses = () => false;
  for (const { id } of [unaccepted, queued])
    t.match(await a.tasks.wait(id, patience), { outcome: 'complete', attempt: 1 });
});

t.test('a task waits for as long as earlier ones move over a slow link, and no longer', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const config = { slowPollMs: 50, taskStartByMs: 1_000 };
  const instance = await startInstance(t, { database, hub: new MemoryHub(), config });
  const slow = new FakeAgent();
  await slow.connect(instance);
  let polls = 0;
  let isMoving = true;
  slow.unsent = () => 1_000_000 - (isMoving ? polls++ : 0);
  const { id } = await instance.tasks.create(nop(slow));
  const later = () => database.query(`select setval('cnapi_ticks', (select last_value from cnapi_ticks) + 60)`);
  await until(() => polls > 20, 'some polls');
  await later();
  const seen = polls;
  await until(() => polls > seen + 20, 'some more polls');
  t.match(await row(database, id), { state: 'queued' });
  isMoving = false;
  const ended = instance.tasks.wait(id, patience);
  await until(async () => {
    await later();
    return (await row(database, id)).state === 'ended';
  }, 'the task to end');
  t.match(await ended, { outcome: 'failure' });
});
