/** What the runner leaves behind when it stops, when its work is abandoned, and after a restart. */
import t from 'tap';
import type { ProcessGroup } from '../../../lib/agent/journal/journal.ts';
import { MemoryJournal } from '../../../lib/agent/journal/journal-memory.ts';
import { systemRandom as random } from '../../../lib/platform/random.ts';
import { systemClock as clock } from '../../../lib/platform/time/clock.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import { matchLists } from '../../support/match-lists.ts';
import { until } from '../../support/until.ts';
import { taskFrame } from '../frames.ts';
import { HeldJournal, settled, setUp } from '../runner-rig.ts';

t.test('after a restart, started tasks fail and accepted ones run once an instance welcomes the agent', async (t) => {
  const journal = new MemoryJournal({ clock, random });
  const group: ProcessGroup = { pgid: 1, startTime: '2', bootId: 'b' };
  const frames = ['accepted', 'running', 'ran'].map((id) => taskFrame({ id, name: 'self-starting' }));
  for (const task of frames) await journal.append({ record: 'accepted', task });
  await journal.append({ record: 'started', id: 'running', group });
  const killed: ProcessGroup[] = [];
  const endGroup = async (one: ProcessGroup) => void killed.push(one);
  const { runner, runs, ends } = setUp(t, journal, { endGroup });
  await runner.recover();
  t.same(killed, [group], 'its leftover processes are killed first');
  t.match(journal.state.tasks.get('running'), { state: 'ended', end: { error: { code: 'AgentRestarted' } } });
  t.equal(ends().length, 0);
  await settled();
  t.equal(runs.length, 0);
  runner.sessionOpened({ settles: false });
  matchLists(t, ends(), [{ id: 'running', error: { code: 'AgentRestarted' } }]);
  await until(() => runs.length === 2, 'the accepted tasks to run');
});

t.test('tasks of a former process wait until the inventory is settled, and do not start if cancelled', async (t) => {
  const journal = new MemoryJournal({ clock, random });
  for (const id of ['open', 'ended elsewhere', 'locked'])
    await journal.append({ record: 'accepted', task: taskFrame({ id, name: 'self-starting' }) });
  const { runner, runs, ends } = setUp(t, journal);
  const isHeld = () => [...journal.state.tasks.values()].filter((task) => runner.isHeld(task)).map(({ id }) => id);
  runner.sessionOpened({ settles: true });
  await settled();
  t.same([runs.length, isHeld()], [0, ['open', 'ended elsewhere', 'locked']]);
  runner.onCancel({ type: 'task_cancel', id: 'ended elsewhere', attempt: 1 });
  runner.onSettled(['open']);
  await until(() => runs.length === 1, 'the open one to run');
  matchLists(t, ends(), [{ id: 'ended elsewhere', error: { code: 'Cancelled' } }]);
  t.same(isHeld(), ['locked']);
  runner.onSettled(['open', 'locked']);
  await until(() => runs.length === 2, 'the one that was settled later to run');
  t.same(isHeld(), []);
});

t.test('stop ends running tasks and leaves those not started to the next process', async (t) => {
  const { give, runs, runner, journal, ends } = setUp(t);
  const running = give({ name: 'serial' });
  const queued = give({ name: 'serial' });
  await until(() => runs.length === 1, 'the task to run');
  await runner.stop();
  matchLists(t, ends(running), [{ outcome: 'failure', error: { code: 'AgentStopped' } }]);
  t.equal(journal.state.tasks.get(queued)?.state, 'accepted');
  t.notOk(journal.state.tasks.has(give()), 'it accepts no further task');
  await settled();
  t.equal(runs.length, 1);
});

t.test('a task that continues has no end when the agent stops, and runs again in the next process', async (t) => {
  const first = setUp(t);
  const id = first.give({ name: 'continuing' });
  await until(() => first.runs.length === 1, 'the task to run');
  await until(() => first.journal.state.tasks.get(id)?.state === 'running', 'its start in the journal');
  await first.runner.stop();
  t.same(first.ends(id), []);
  t.equal(first.journal.state.tasks.get(id)?.state, 'running');

  const second = setUp(t, first.journal);
  await second.runner.recover();
  second.runner.sessionOpened({ settles: false });
  await until(() => second.runs.length === 1, 'the task to run again');
  second.runner.sessionOpened({ settles: false });
  second.runs[0]?.finish();
  t.match(await second.end(id), { outcome: 'complete', result: { ran: id } });
  t.equal(second.runs.length, 1);
});

t.test('the processes that continue a task share one time limit and one count of starts', async (t) => {
  const manual = new ManualClock();
  const journal = new MemoryJournal({ clock: manual, random });
  const first = setUp(t, journal, { clock: manual });
  const id = first.give({ name: 'continuing', timeoutMs: 5_000 });
  await until(() => first.runs.length === 1, 'the task to run');
  await first.runner.stop();
  await manual.advance(3_000);
  const second = setUp(t, journal, { clock: manual });
  second.runner.sessionOpened({ settles: false });
  await until(() => second.runs.length === 1, 'the task to run again');
  t.match(journal.state.tasks.get(id), { state: 'running', starts: 2 });
  await manual.advance(1_999);
  t.same(second.ends(id), []);
  await manual.advance(1);
  t.match(await second.end(id), { outcome: 'failure', error: { code: 'TaskTimeout' } });
});

t.test('a task that continues does not run again after its time limit', async (t) => {
  const manual = new ManualClock();
  const journal = new MemoryJournal({ clock: manual, random });
  await journal.append({ record: 'accepted', task: taskFrame({ id: 'late', name: 'continuing', timeoutMs: 5_000 }) });
  await journal.append({ record: 'started', id: 'late', at: manual.wallTime() - 5_000 });
  const { runner, end } = setUp(t, journal, { clock: manual });
  runner.sessionOpened({ settles: false });
  await manual.advance(0);
  t.match(await end('late'), { outcome: 'failure', error: { code: 'TaskTimeout' } });
});

t.test('after stop no time limit ends a task that is left to the next process', async (t) => {
  const manual = new ManualClock();
  const { give, runs, runner, journal } = setUp(t, undefined, { clock: manual });
  give({ name: 'serial' });
  const queued = give({ name: 'serial', timeoutMs: 5_000 });
  await until(() => runs.length === 1, 'the task to run');
  await runner.stop();
  await manual.advance(60_000);
  t.equal(journal.state.tasks.get(queued)?.state, 'accepted');
});

t.test('after a restart an accepted task that this version does not know fails', async (t) => {
  const journal = new MemoryJournal({ clock, random });
  await journal.append({ record: 'accepted', task: taskFrame({ id: 'accepted', name: 'of-another-version' }) });
  const { runner, end } = setUp(t, journal);
  await runner.recover();
  runner.sessionOpened({ settles: false });
  t.match(await end('accepted'), { outcome: 'failure', error: { code: 'UnknownTask' } });
});

t.test('abandoned work leaves no trace in the renewed journal', async (t) => {
  const { give, runs, runner, journal, ends } = setUp(t);
  give();
  give({ name: 'serial' });
  give({ name: 'serial' });
  await until(() => runs.length === 2, 'two tasks to run');
  await runner.abandon();
  await journal.renew();
  await settled();
  t.equal(journal.state.tasks.size, 0);
  t.equal(ends().length, 0);
  t.equal(runs.length, 2);
});

t.test('work that is abandoned while its end is written reports nothing', async (t) => {
  const journal = new HeldJournal();
  const { give, runs, runner, ends } = setUp(t, journal);
  const id = give();
  await until(() => runs.length === 1, 'the task to run');
  journal.held = true;
  runs[0]?.finish();
  await until(() => journal.state.tasks.get(id)?.state === 'ended', 'the end in the journal');
  const abandoned = runner.abandon();
  journal.sync();
  await abandoned;
  t.equal(ends().length, 0);
});

t.test('abandoning work waits until it has ended', async (t) => {
  const execution = Promise.withResolvers<never>();
  let isExecuting = false;
  let isAbandoned = false;
  const execute = () => {
    isExecuting = true;
    return execution.promise;
  };
  const { give, runner, ends } = setUp(t, new HeldJournal(), { execute });
  give({ name: 'command_execute', params: { script: 'x' } });
  await until(() => isExecuting, 'the command');
  const abandoned = runner.abandon().then(() => {
    isAbandoned = true;
  });
  await settled();
  t.notOk(isAbandoned);
  execution.reject(new Error('ended'));
  await abandoned;
  t.equal(ends().length, 0);
});
