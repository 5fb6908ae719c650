/** Which attempt an agent answers under, and what it does when its journal is full. */
import t from 'tap';
import { buildInventory } from '../../../lib/agent/journal/journal.ts';
import { MemoryJournal } from '../../../lib/agent/journal/journal-memory.ts';
import { PARALLEL_TASKS } from '../../../lib/agent/runner/lanes.ts';
import { systemRandom as random } from '../../../lib/platform/random.ts';
import { systemClock as clock } from '../../../lib/platform/time/clock.ts';
import { MAX_INVENTORY_TASKS } from '../../../lib/protocol/limits.ts';
import { matchLists } from '../../support/match-lists.ts';
import { until } from '../../support/until.ts';
import { ended } from '../frames.ts';
import { HeldJournal, settled, setUp } from '../runner-rig.ts';

t.test('a higher attempt of a known task starts nothing; the task continues under the new number', async (t) => {
  const { give, runs, sent, ends, end, runner, journal } = setUp(t);
  const id = give();
  await until(() => runs.length === 1, 'the task to run');
  give({ id, attempt: 2 });
  t.match(sent.at(-1), { type: 'task_event', attempt: 2, event: { name: 'accepted' } });
  matchLists(t, buildInventory(journal.state), [{ id, attempt: 2, state: 'running' }]);
  runs[0]?.finish();
  t.match(await end(id), { attempt: 2, outcome: 'complete' });
  give({ id, attempt: 3 });
  t.match(ends(id).at(-1), { attempt: 3, outcome: 'complete' });
  runner.onAck({ type: 'task_ack', id, attempt: 2 });
  t.equal(journal.state.tasks.size, 1, 'an acknowledgement of the former attempt is ignored');
  runner.onAck({ type: 'task_ack', id, attempt: 3 });
  t.equal(journal.state.tasks.size, 0);
  t.equal(runs.length, 1);
});

t.test('a lower attempt, sent after a database restore, continues the task under that number', async (t) => {
  const { give, runs, sent, ends, end, runner, journal } = setUp(t);
  const id = give({ attempt: 3 });
  await until(() => runs.length === 1, 'the task to run');
  give({ id, attempt: 2 });
  t.match(sent.at(-1), { type: 'task_event', attempt: 2, event: { name: 'accepted' } });
  runs[0]?.finish();
  t.match(await end(id), { attempt: 2, outcome: 'complete' });
  give({ id, attempt: 1 });
  t.match(ends(id).at(-1), { attempt: 1, outcome: 'complete' }, 'a task that has ended answers the same way');
  runner.onAck({ type: 'task_ack', id, attempt: 1 });
  t.equal(journal.state.tasks.size, 1);
  runner.onAck({ type: 'task_ack', id, attempt: 2 });
  t.equal(journal.state.tasks.size, 0);
  t.equal(runs.length, 1);
  const cancelled = give({ name: 'slow', attempt: 3 });
  give({ id: cancelled, name: 'slow', attempt: 2 });
  runner.onCancel({ type: 'task_cancel', id: cancelled, attempt: 2 });
  t.match(
    await end(cancelled),
    { attempt: 2, error: { code: 'Cancelled' } },
    'the task can be cancelled under the lower number',
  );
});

t.test('a cancel applies to its attempt and lower ones; one of a former attempt is ignored', async (t) => {
  const { give, end, runner, sent, journal } = setUp(t);
  const id = give({ name: 'slow', attempt: 2 });
  await until(() => sent.length === 2, 'the task to run');
  const before = sent.length;
  runner.onCancel({ type: 'task_cancel', id, attempt: 1 });
  await settled();
  t.equal(sent.length, before);
  t.equal(journal.state.tasks.get(id)?.state, 'running');
  runner.onCancel({ type: 'task_cancel', id, attempt: 3 });
  t.match(await end(id), { attempt: 3, error: { code: 'Cancelled' } }, 'the end has the attempt of the cancel');
});

t.test('a full agent refuses tasks, and repeats the same answer for the same attempt', async (t) => {
  const journal = new HeldJournal();
  const { give, ends, runner, runs } = setUp(t, journal);
  const ids = Array.from({ length: 5000 }, () => give({ name: 'self-starting' }));
  const extra = give();
  matchLists(t, ends(extra), [{ outcome: 'failure', error: { code: 'AgentFull' } }]);
  await until(() => runs.length === PARALLEL_TASKS, 'all parallel slots to be busy');
  runs[0]?.finish();
  await until(() => ends(ids[0]).length === 1, 'one end');
  runner.onAck({ type: 'task_ack', id: ids[0] as string, attempt: 1 });
  give({ id: extra });
  matchLists(
    t,
    ends(extra),
    [{ error: { code: 'AgentFull' } }, { error: { code: 'AgentFull' } }],
    'the answer is the same although there is room now',
  );
  t.notOk(journal.state.tasks.has(extra));
  await runner.stop();
});

/** A journal that is full; `empty` acknowledges one of its ends. */
async function fullJournal() {
  const journal = new MemoryJournal({ clock, random });
  const ids = Array.from({ length: MAX_INVENTORY_TASKS }, () => random.uuid());
  for (const id of ids) await journal.append({ record: 'ended', end: ended(id) });
  return { journal, empty: () => journal.append({ record: 'acknowledged', id: ids.pop() as string }) };
}

t.test('a refused task answers each attempt, and a later attempt runs when there is room', async (t) => {
  const { journal, empty } = await fullJournal();
  const { give, ends, runner, runs } = setUp(t, journal);
  const id = give();
  give({ id, attempt: 2 });
  matchLists(t, ends(id), [
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
  await until(() => runs.length === 1, 'the next attempt to run');
  runs[0]?.finish();
  await until(() => ends(id).length === 5, 'its end');
  t.match(ends(id).at(-1), { attempt: 4, outcome: 'complete' });
});

t.test('refused tasks do not make the journal larger than an inventory may be', async (t) => {
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
  t.equal(buildInventory(journal.state).length, MAX_INVENTORY_TASKS);
});
