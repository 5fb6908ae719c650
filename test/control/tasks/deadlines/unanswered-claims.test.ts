/** Tasks that had no chance to be taken, because no claim for their server was answered. */
import t from 'tap';
import { DatabaseBusyError } from '../../../../lib/platform/errors.ts';
import type { Database } from '../../../../lib/platform/postgres/database.ts';
import { MemoryHub } from '../../../support/memory-bus.ts';
import { FILE_TIMEOUT_MS } from '../../../support/patience.ts';
import { freshDatabase } from '../../../support/postgres.ts';
import { until } from '../../../support/until.ts';
import { FakeAgent, startInstance } from '../support/fake-agents.ts';
import { backdate, migrations, row } from '../support/task-database.ts';
import { holding, nop, patience, untilRow } from '../support/three-instances.ts';

t.setTimeout(FILE_TIMEOUT_MS);

const CLAIMS = 'cnapi_claim_for_sessions';
const NOTES = 'cnapi_record_full_servers';
const SWEEPS = 'cnapi_sweep_late_tasks';

/** A database that counts statements, and in which those with some texts fail. */
function failing(database: Database, failures: Map<string, Error>, counts: Map<string, number>): Database {
  const query: Database['query'] = async (text, values, options) => {
    for (const name of [CLAIMS, NOTES, SWEEPS]) if (text.includes(name)) counts.set(name, (counts.get(name) ?? 0) + 1);
    for (const [name, error] of failures) if (text.includes(name)) throw error;
    return database.query(text, values, options);
  };
  return Object.create(database, { query: { value: query } }) as Database;
}

/** Two instances, of which the first one's statements fail as the test says. Both sweep. */
async function twoInstances(t: Parameters<typeof freshDatabase>[0], hasSecond = true) {
  const { database } = await freshDatabase(t, { migrations });
  const hub = new MemoryHub();
  const config = { slowPollMs: 50, taskStartByMs: 100 };
  const failures = new Map<string, Error>();
  const [countsOfA, countsOfB] = [new Map<string, number>(), new Map<string, number>()];
  const a = await startInstance(t, { database: failing(database, failures, countsOfA), hub, config });
  if (hasSecond) await startInstance(t, { database: failing(database, new Map(), countsOfB), hub, config });
  const counts = hasSecond ? countsOfB : countsOfA;
  const sweeps = async (more: number) => {
    const from = counts.get(SWEEPS) ?? 0;
    await until(() => (counts.get(SWEEPS) ?? 0) >= from + more, `${more} sweeps`);
  };
  return { a, database, failures, countsOfA, sweeps };
}

for (const condition of ['locked', 'slow', 'unanswered', 'resources'] as const)
  t.test(`while claims fail because the database is busy (${condition}), no instance ends a queued task`, async (t) => {
    const { a, database, failures, countsOfA, sweeps } = await twoInstances(t);
    failures.set(CLAIMS, new DatabaseBusyError(condition));
    const agent = new FakeAgent();
    await agent.connect(a);
    const { id } = await a.tasks.create(nop(agent));
    await until(() => (countsOfA.get(NOTES) ?? 0) > 0, 'the first instance to store that nothing is claimed');
    await backdate(database, id, 60_000);
    await sweeps(5);
    t.match(await row(database, id), { state: 'queued' });
    failures.clear();
    t.match(await a.tasks.wait(id, patience), { outcome: 'complete' });
  });

t.test('an instance that cannot store that nothing is claimed ends no queued tasks', async (t) => {
  const { a, database, failures, countsOfA, sweeps } = await twoInstances(t, false);
  failures.set(CLAIMS, new DatabaseBusyError('slow'));
  failures.set(NOTES, new DatabaseBusyError('slow'));
  const agent = new FakeAgent();
  await agent.connect(a);
  const { id } = await a.tasks.create(nop(agent));
  await until(() => (countsOfA.get(NOTES) ?? 0) > 0, 'the first try to store it');
  await backdate(database, id, 60_000);
  await sweeps(5);
  t.match(await row(database, id), { state: 'queued' });
});

t.test('a task whose claims the database refuses for another reason ends when its time is over', async (t) => {
  const { a, database, failures } = await twoInstances(t);
  failures.set(CLAIMS, new Error('a corrupt row'));
  const agent = new FakeAgent();
  await agent.connect(a);
  const { id } = await a.tasks.create(nop(agent));
  await backdate(database, id, 60_000);
  await untilRow(database, id, ({ state }) => state === 'ended');
});

t.test('a task whose agent reads nothing still ends', async (t) => {
  const { a, database } = await twoInstances(t);
  const agent = holding(new FakeAgent());
  agent.unsent = () => 1;
  await agent.connect(a);
  const { id } = await a.tasks.create(nop(agent));
  await backdate(database, id, 60_000);
  await untilRow(database, id, ({ state }) => state === 'ended');
});
