/** How fast tasks are sent: as fast as the agent accepts them, and its link takes them. */
import t from 'tap';
import { FILE_TIMEOUT_MS } from '../../support/patience.ts';
import { until } from '../../support/until.ts';
import { FakeAgent } from './support/fake-agents.ts';
import { row } from './support/task-database.ts';
import { nop, patience, threeInstances, untilRow } from './support/three-instances.ts';

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
  a.tasks.pollSoon();
  for (const id of ids) t.match(await a.tasks.wait(id, patience), { status: 'complete', attempt: 1 });
});

t.test('nothing is sent, and nothing sent again, over a link that is backed up, until it has room', async (t) => {
  const { a, database } = await threeInstances(t, { slowPollMs: 50, taskResendMs: 100 });
  const [slow, other] = [new FakeAgent(), new FakeAgent()];
  slow.loses = () => true;
  let lost = 0;
  other.loses = () => ++lost === 1;
  await slow.connect(a);
  await other.connect(a);
  const unaccepted = await a.tasks.create(nop(slow));
  await untilRow(database, unaccepted.id, (task) => task.state === 'claimed');
  slow.isBackedUp = true;
  let arrived = 0;
  slow.loses = () => ++arrived > 0;
  const queued = await a.tasks.create(nop(slow));
  const { id: lostOnce } = await a.tasks.create(nop(other));
  t.match(
    await a.tasks.wait(lostOnce, patience),
    { status: 'complete' },
    'a poll sends again what another server has lost',
  );
  t.equal(arrived, 0);
  t.match(await row(database, queued.id), { state: 'queued' });
  slow.isBackedUp = false;
  slow.loses = () => false;
  for (const { id } of [unaccepted, queued])
    t.match(await a.tasks.wait(id, patience), { status: 'complete', attempt: 1 });
});
