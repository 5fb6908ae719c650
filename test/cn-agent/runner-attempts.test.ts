/** Which attempt an agent answers under, and what it does when its journal is full. */
import t from 'tap';
import { inventoryOf } from '../../lib/cn-agent/journal.ts';
import { MemoryJournal } from '../../lib/cn-agent/journal-memory.ts';
import { PARALLEL_TASKS } from '../../lib/cn-agent/runner.ts';
import { systemClock as clock } from '../../lib/ports/clock.ts';
import { systemRandom as random } from '../../lib/ports/random.ts';
import { MAX_INVENTORY_TASKS } from '../../lib/wire/limits.ts';
import { until } from '../support/until.ts';
import { ended } from './frames.ts';
import { HeldJournal, settled, setUp } from './runner-rig.ts';

t.test('a higher attempt of a known task starts nothing: what is known goes on under its number', async (t) => {
  const { give, runs, sent, ends, end, runner, journal } = setUp(t);
  const id = give();
  await until(() => runs.length === 1, 'a run');
  give({ id, attempt: 2 });
  t.match(sent.at(-1), { type: 'task_event', attempt: 2, event: { name: 'accepted' } });
  t.match(inventoryOf(journal.state), [{ id, attempt: 2, state: 'running' }]);
  runs[0]?.finish();
  t.match(await end(id), { attempt: 2, outcome: 'complete' });
  give({ id, attempt: 3 });
  t.match(ends(id).at(-1), { attempt: 3, outcome: 'complete' });
  runner.onAck({ type: 'task_ack', id, attempt: 2 });
  t.equal(journal.state.tasks.size, 1, 'the acknowledgement of the attempt before is late');
  runner.onAck({ type: 'task_ack', id, attempt: 3 });
  t.equal(journal.state.tasks.size, 0);
  t.equal(runs.length, 1);
});

t.test(
  'a lower attempt is of a database that has gone back: it is answered, and reported to, under that',
  async (t) => {
    const { give, runs, sent, ends, end, runner, journal } = setUp(t);
    const id = give({ attempt: 3 });
    await until(() => runs.length === 1, 'a run');
    give({ id, attempt: 2 });
    t.match(sent.at(-1), { type: 'task_event', attempt: 2, event: { name: 'accepted' } });
    runs[0]?.finish();
    t.match(await end(id), { attempt: 2, outcome: 'complete' });
    give({ id, attempt: 1 });
    t.match(ends(id).at(-1), { attempt: 1, outcome: 'complete' }, 'so is one that has ended');
    runner.onAck({ type: 'task_ack', id, attempt: 1 });
    t.equal(journal.state.tasks.size, 1);
    runner.onAck({ type: 'task_ack', id, attempt: 2 });
    t.equal(journal.state.tasks.size, 0);
    t.equal(runs.length, 1);
    const cancelled = give({ name: 'slow', attempt: 3 });
    give({ id: cancelled, name: 'slow', attempt: 2 });
    runner.onCancel({ type: 'task_cancel', id: cancelled, attempt: 2 });
    t.match(await end(cancelled), { attempt: 2, error: { code: 'Cancelled' } }, 'and can be cancelled under it');
  },
);

t.test('a cancel is for the attempt it names or a lower one: one of an attempt that is over comes late', async (t) => {
  const { give, end, runner, sent, journal } = setUp(t);
  const id = give({ name: 'slow', attempt: 2 });
  await until(() => sent.length === 2, 'a run');
  const before = sent.length;
  runner.onCancel({ type: 'task_cancel', id, attempt: 1 });
  await settled();
  t.equal(sent.length, before);
  t.equal(journal.state.tasks.get(id)?.state, 'running');
  runner.onCancel({ type: 'task_cancel', id, attempt: 3 });
  t.match(await end(id), { attempt: 3, error: { code: 'Cancelled' } }, 'answered as it was asked');
});

t.test('a full agent turns tasks away, and says the same when they come again', async (t) => {
  const journal = new HeldJournal();
  const { give, ends, runner, runs } = setUp(t, journal);
  const ids = Array.from({ length: 5000 }, () => give({ name: 'gated' }));
  const extra = give();
  t.match(ends(extra), [{ outcome: 'failure', error: { code: 'AgentFull' } }]);
  await until(() => runs.length === PARALLEL_TASKS, 'all lanes busy');
  runs[0]?.finish();
  await until(() => ends(ids[0]).length === 1, 'one end');
  runner.onAck({ type: 'task_ack', id: ids[0] as string, attempt: 1 });
  give({ id: extra });
  t.match(
    ends(extra),
    [{ error: { code: 'AgentFull' } }, { error: { code: 'AgentFull' } }],
    'though there is room now',
  );
  t.notOk(journal.state.tasks.has(extra));
  await runner.stop();
});

/** So full that it takes nothing more; `empty` has one of its ends acknowledged. */
async function fullJournal() {
  const journal = new MemoryJournal({ clock, random });
  const ids = Array.from({ length: MAX_INVENTORY_TASKS }, () => random.uuid());
  for (const id of ids) await journal.append({ record: 'ended', end: ended(id) });
  return { journal, empty: () => journal.append({ record: 'acknowledged', id: ids.pop() as string }) };
}

t.test('a task that was turned away is answered under the attempt asked for, and run when there is room', async (t) => {
  const { journal, empty } = await fullJournal();
  const { give, ends, runner, runs } = setUp(t, journal);
  const id = give();
  give({ id, attempt: 2 });
  t.match(ends(id), [
    { attempt: 1, error: { code: 'AgentFull' } },
    { attempt: 2, error: { code: 'AgentFull' } },
  ]);
  runner.onCancel({ type: 'task_cancel', id, attempt: 3 });
  t.match(ends(id).at(-1), { attempt: 3, error: { code: 'Cancelled' } });
  await empty();
  give({ id, attempt: 3 });
  t.match(ends(id).at(-1), { attempt: 3, error: { code: 'Cancelled' } }, 'the cancelled attempt never runs');
  t.equal(runs.length, 0);
  give({ id, attempt: 4 });
  await until(() => runs.length === 1, 'a run of the next one');
  runs[0]?.finish();
  await until(() => ends(id).length === 5, 'its end');
  t.match(ends(id).at(-1), { attempt: 4, outcome: 'complete' });
});

t.test('nothing that is refused makes the journal larger than an inventory may be', async (t) => {
  const { journal, empty } = await fullJournal();
  const { give, ends, end, runner } = setUp(t, journal);
  await empty();
  t.match(await end(give({ name: 'agent_pause' })), { outcome: 'complete' });
  const refused = [give({ name: 'no such task' }), give({ name: 'nop' }), random.uuid()];
  runner.onCancel({ type: 'task_cancel', id: refused[2] as string, attempt: 1 });
  await settled();
  t.same(
    refused.map((id) => ends(id)[0]?.error?.code),
    ['UnknownTask', 'AgentPaused', 'Cancelled'],
  );
  t.equal(inventoryOf(journal.state).length, MAX_INVENTORY_TASKS);
});
