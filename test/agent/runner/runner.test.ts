import t from 'tap';
import { MemoryJournal } from '../../../lib/agent/journal/journal-memory.ts';
import { PARALLEL_TASKS } from '../../../lib/agent/runner/lanes.ts';
import { TaskFailure } from '../../../lib/agent/task-failure.ts';
import { systemRandom as random } from '../../../lib/platform/random.ts';
import { systemClock as clock } from '../../../lib/platform/time/clock.ts';
import type { TaskFrame } from '../../../lib/protocol/link/frames.ts';
import { until } from '../../support/until.ts';
import { taskFrame } from '../frames.ts';
import { HeldJournal, serverUuid, settled, setUp } from '../runner-rig.ts';

const nested = (levels: number): unknown => JSON.parse('['.repeat(levels) + ']'.repeat(levels));

t.test('each step of a task is journalled before it is reported or carried out', async (t) => {
  const journal = new HeldJournal();
  const { give, sent, runs, events, end } = setUp(t, journal);
  journal.held = true;
  const id = give();
  await settled();
  give({ id });
  await settled();
  t.same([sent.length, runs.length], [0, 0], 'not accepted before the journal has it, however often it is sent');
  journal.sync(1);
  await until(() => events(id).length === 1, 'accepted to be sent');
  await settled();
  t.same([events(id), runs.length], [['accepted'], 0], 'not started before the start is journalled');
  journal.sync();
  await until(() => runs.length === 1, 'the task to run');
  runs[0]?.finish();
  await settled();
  t.equal(sent.filter((frame) => frame.type === 'task_end').length, 0, 'not ended before the end is journalled');
  journal.sync();
  t.match(await end(id), { outcome: 'complete', result: { ran: id } });
  t.same(
    journal.written.map((record) => record.record),
    ['accepted', 'started', 'ended'],
  );
});

t.test('a task that is sent again while it is known does not start again', async (t) => {
  const { give, runs, events, ends, end, runner } = setUp(t);
  const id = give();
  await until(() => runs.length === 1, 'the task to run');
  give({ id });
  t.same(events(id), ['accepted', 'started', 'accepted']);
  runs[0]?.finish();
  await end(id);
  give({ id });
  t.equal(ends(id).length, 2, 'its end is sent again');
  runner.onAck({ type: 'task_ack', id, attempt: 1 });
  give({ id, attempt: 2 });
  await settled();
  t.match(ends(id).at(-1), { attempt: 2, outcome: 'failure', error: { code: 'TaskAlreadyEnded' } });
  t.equal(runs.length, 1);
});

t.test('ends are repeated to each new session until they are acknowledged', async (t) => {
  const { give, runs, ends, outbox, runner, journal } = setUp(t);
  const id = give();
  await until(() => runs.length === 1, 'the task to run');
  outbox.live = false;
  outbox.hasRoom = false;
  runs[0]?.finish();
  await until(() => journal.state.tasks.get(id)?.state === 'ended', 'the end in the journal');
  t.equal(ends(id).length, 0);
  outbox.live = true;
  outbox.hasRoom = true;
  await settled();
  runner.sessionOpened({ settles: false });
  t.equal(ends(id).length, 1);
  runner.sessionOpened({ settles: false });
  t.equal(ends(id).length, 2);
  runner.onAck({ type: 'task_ack', id, attempt: 2 });
  t.equal(journal.state.tasks.size, 1, 'an acknowledgement of another attempt is ignored');
  runner.onAck({ type: 'task_ack', id, attempt: 1 });
  runner.sessionOpened({ settles: false });
  t.equal(ends(id).length, 2);
  t.equal(journal.state.tasks.size, 0);
});

t.test('an acknowledgement makes room to send ends that did not fit', async (t) => {
  const { give, runs, ends, end, outbox, runner, journal } = setUp(t);
  const [first, second] = [give(), give()];
  await until(() => runs.length === 2, 'both to run');
  runs.find(({ id }) => id === first)?.finish();
  await end(first);
  outbox.hasRoom = false;
  runs.find(({ id }) => id === second)?.finish();
  await until(() => journal.state.tasks.get(second)?.state === 'ended', 'the end in the journal');
  await settled();
  t.equal(ends(second).length, 0);
  outbox.hasRoom = true;
  runner.onAck({ type: 'task_ack', id: first, attempt: 1 });
  t.equal(ends(second).length, 1);
});

t.test('within a session, unacknowledged ends are repeated periodically', async (t) => {
  const { give, runs, ends, end, runner } = setUp(t);
  const [ended, running] = [give(), give()];
  await until(() => runs.length === 2, 'both to run');
  runs.find(({ id }) => id === ended)?.finish();
  await end(ended);
  let now = 1_000_000;
  const ticks = (seconds: number) => {
    for (let second = 0; second < seconds; second += 1) {
      runner.tick(now);
      now += 1_000;
    }
  };
  ticks(2);
  t.equal(ends(ended).length, 2);
  ticks(13);
  t.equal(ends(ended).length, 2, 'not at each tick');
  ticks(2);
  t.equal(ends(ended).length, 3);
  t.equal(ends(running).length, 0, 'a running task has no end');
  runner.onAck({ type: 'task_ack', id: ended, attempt: 1 });
  ticks(60);
  t.equal(ends(ended).length, 3);
});

t.test('an end that is not durable yet is not sent to a new session either', async (t) => {
  const journal = new HeldJournal();
  const { give, runs, ends, runner } = setUp(t, journal);
  const id = give();
  await until(() => runs.length === 1, 'the task to run');
  journal.held = true;
  runs[0]?.finish();
  await until(() => journal.state.tasks.get(id)?.state === 'ended', 'the end in the journal');
  runner.sessionOpened({ settles: false });
  runner.tick(1e9);
  t.equal(ends(id).length, 0);
  journal.sync();
  await until(() => ends(id).length > 0, 'the end');
});

t.test('a cancel ends a task in any state, and one that has not arrived yet', async (t) => {
  const { give, runs, end, ends, runner, journal } = setUp(t);
  const cancel = (id: string, attempt = 1) => runner.onCancel({ type: 'task_cancel', id, attempt });
  const running = give({ name: 'slow' });
  await settled();
  cancel(running);
  t.match(await end(running), { outcome: 'failure', attempt: 1, error: { code: 'Cancelled' } }, 'running');

  const first = give({ name: 'serial' });
  const queued = give({ name: 'serial' });
  await until(() => runs.length === 1, 'the first serial task to run');
  cancel(queued);
  t.match(await end(queued), { error: { code: 'Cancelled' } }, 'queued');
  runs[0]?.finish();
  await end(first);
  await settled();
  t.equal(runs.length, 1, 'the cancelled one never ran');

  const unknown = random.uuid();
  cancel(unknown, 3);
  t.match(await end(unknown), { attempt: 3, error: { code: 'Cancelled' } }, 'unknown');
  t.equal(
    journal.state.tasks.get(unknown)?.state,
    'ended',
    'the cancel is journalled so that the task cannot start later',
  );
  give({ id: unknown, attempt: 3 });
  await settled();
  t.equal(runs.length, 1);

  cancel(first);
  t.match(ends(first).at(-1), { outcome: 'complete' }, 'a task that has ended keeps its end');
});

t.test('a cancel of a task that has ended is answered with its end', async (t) => {
  const { give, runs, ends, end, runner } = setUp(t);
  const id = give();
  await until(() => runs.length === 1, 'the task to run');
  runs[0]?.finish();
  await end(id);
  await settled();
  t.equal(ends(id).length, 1);
  runner.onCancel({ type: 'task_cancel', id, attempt: 1 });
  t.match(ends(id)[1], { outcome: 'complete', result: { ran: id } });
});

t.test("a cancel before a restarted agent's first session ends an accepted task, which never runs", async (t) => {
  const journal = new MemoryJournal({ clock, random });
  await journal.append({ record: 'accepted', task: taskFrame({ id: 'accepted', name: 'self-starting' }) });
  const { runner, runs, end } = setUp(t, journal);
  await runner.recover();
  runner.onCancel({ type: 'task_cancel', id: 'accepted', attempt: 1 });
  t.match(await end('accepted'), { outcome: 'failure', error: { code: 'Cancelled' } });
  runner.sessionOpened({ settles: false });
  await settled();
  t.equal(runs.length, 0);
});

t.test('a cancel while the acceptance is written leaves one end and no run', async (t) => {
  const journal = new HeldJournal();
  const { give, runs, end, events, runner } = setUp(t, journal);
  journal.held = true;
  const id = give();
  runner.onCancel({ type: 'task_cancel', id, attempt: 1 });
  journal.held = false;
  journal.sync();
  t.match(await end(id), { error: { code: 'Cancelled' } });
  await settled();
  t.same([events(id), runs.length], [['accepted'], 0]);
});

t.test('a task that starts itself that is cancelled while its acceptance is written never runs', async (t) => {
  const journal = new HeldJournal();
  const { give, runs, end, runner } = setUp(t, journal);
  journal.held = true;
  const id = give({ name: 'unbegun' });
  runner.onCancel({ type: 'task_cancel', id, attempt: 1 });
  journal.sync(1);
  await settled();
  t.equal(runs.length, 0);
  journal.sync();
  t.match(await end(id), { error: { code: 'Cancelled' } });
});

t.test('a cancel that is repeated while the end is written leaves one end', async (t) => {
  const journal = new HeldJournal();
  const { give, runs, end, ends, runner } = setUp(t, journal);
  give({ name: 'serial' });
  await until(() => runs.length === 1, 'the first serial task to run');
  const id = give({ name: 'serial' });
  await settled();
  journal.held = true;
  for (let times = 0; times < 2; times += 1) runner.onCancel({ type: 'task_cancel', id, attempt: 1 });
  journal.held = false;
  journal.sync();
  t.match(await end(id), { error: { code: 'Cancelled' } });
  await settled();
  const written = journal.written.filter((record) => record.record === 'ended');
  t.same([ends(id).length, written.length], [1, 1]);
});

t.test('a cancel of a task whose end was acknowledged is answered with a cancelled end', async (t) => {
  const { give, runs, end, ends, runner } = setUp(t);
  const id = give();
  await until(() => runs.length === 1, 'the task to run');
  runs[0]?.finish();
  await end(id);
  runner.onAck({ type: 'task_ack', id, attempt: 1 });
  await settled();
  runner.onCancel({ type: 'task_cancel', id, attempt: 2 });
  t.match(ends(id)[1], { attempt: 2, outcome: 'failure', error: { code: 'Cancelled' } });
});

t.test('a timeout ends a running task as TaskTimeout, and one that never started as NotTaken', async (t) => {
  const { give, end, runs } = setUp(t);
  t.match(await end(give({ name: 'slow', timeoutMs: 30 })), { outcome: 'failure', error: { code: 'TaskTimeout' } });
  give({ name: 'serial' });
  const error = { code: 'NotTaken', message: /did not start within 0\.03 s/ };
  t.match(await end(give({ name: 'serial', timeoutMs: 30 })), { outcome: 'failure', error });
  t.equal(runs.length, 1);
});

t.test('a task that cannot run ends immediately with a code that says why', async (t) => {
  const { give, end } = setUp(t);
  const rows: [Partial<TaskFrame>, string, RegExp][] = [
    [{ name: 'toString' }, 'UnknownTask', /Unknown task, 'toString'/],
    [{ name: 'sleep', params: {} }, 'InvalidParameters', /timeout/],
    [{ name: 'command_execute', params: { script: 'x', env: { 'A=B': 'c' } } }, 'InvalidParameters', /env/],
    [{ name: 'nop', params: { a: nested(5000) } }, 'InvalidParameters', /nested too deep/],
    [{ name: 'nop', params: { error: 'as asked' } }, 'NopError', /as asked/],
    [{ name: 'server_reboot' }, 'RebootNotAllowed', /--allow-reboot/],
  ];
  for (const [fields, code, message] of rows) {
    t.match(await end(give(fields)), { outcome: 'failure', error: { code, message } }, code);
  }
});

t.test('a paused agent accepts no task except agent_resume', async (t) => {
  const { give, end, runner } = setUp(t);
  t.match(await end(give({ name: 'agent_pause' })), { outcome: 'complete' });
  t.ok(runner.isPaused);
  const refused = await end(give({ name: 'nop' }));
  const message = /^CN Agent is not accepting tasks for maintenance: an operator .*: cnapi server resume$/;
  t.match(refused, { error: { code: 'AgentPaused', message } });
  await end(give({ name: 'agent_resume' }));
  t.match(await end(give({ name: 'nop' })), { outcome: 'complete' });
});

t.test('parallel tasks are bounded, serial ones run one at a time, control tasks run immediately', async (t) => {
  const { give, runs, end } = setUp(t);
  for (let n = 0; n < PARALLEL_TASKS + 5; n++) give();
  give({ name: 'serial' });
  give({ name: 'serial' });
  await until(() => runs.length === PARALLEL_TASKS + 1, 'the parallel and serial slots to fill');
  await settled();
  t.equal(runs.length, PARALLEL_TASKS + 1);
  t.match(await end(give({ name: 'server_sysinfo' })), {
    outcome: 'complete',
    result: { sysinfo: { UUID: serverUuid } },
  });
  runs[0]?.finish();
  await until(() => runs.length === PARALLEL_TASKS + 2, 'the next task to run');
});

t.test('a task reports its progress', async (t) => {
  const { give, end, events } = setUp(t);
  const reported = give({ name: 'sleep', params: { timeout: 1_000 } });
  await end(reported);
  t.ok(events(reported).includes('progress'));
});

t.test('an unexpected error of a task fails the task, not the agent', async (t) => {
  const { give, end } = setUp(t, new HeldJournal(), {
    sysinfo: async () => {
      throw new TypeError('no such file');
    },
    execute: async () => {
      throw new TaskFailure('SpawnFailed', 'too many processes');
    },
  });
  t.match(await end(give({ name: 'server_sysinfo' })), { error: { code: 'TaskError', message: 'no such file' } });
  t.match(await end(give({ name: 'command_execute', params: { script: 'x' } })), { error: { code: 'SpawnFailed' } });
});
