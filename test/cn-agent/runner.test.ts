import t, { type Test } from 'tap';
import { z } from 'zod';
import { inventoryOf, type Journal, type JournalRecord, type ProcessGroup } from '../../lib/cn-agent/journal.ts';
import { MemoryJournal } from '../../lib/cn-agent/journal-memory.ts';
import type { Machine } from '../../lib/cn-agent/machine.ts';
import { PARALLEL_TASKS, Runner } from '../../lib/cn-agent/runner.ts';
import { TaskFailure } from '../../lib/cn-agent/task-end.ts';
import { catalogue } from '../../lib/cn-agent/tasks/catalogue.ts';
import { type AgentTask, defineTask, pause } from '../../lib/cn-agent/tasks/task.ts';
import { StandInMachine } from '../../lib/fleet/stand-in-machine.ts';
import { silentLogger } from '../../lib/log.ts';
import { systemClock as clock } from '../../lib/ports/clock.ts';
import { systemRandom as random } from '../../lib/ports/random.ts';
import type { AgentFrame, TaskEndFrame, TaskFrame } from '../../lib/wire/frames.ts';
import { MAX_INVENTORY_TASKS } from '../../lib/wire/limits.ts';
import { until } from '../support/until.ts';
import { ended, taskFrame } from './frames.ts';

const serverUuid = random.uuid();

/** A journal on a slow disk: nothing is durable before `sync`. */
class HeldJournal implements Journal {
  readonly #inner = new MemoryJournal({ clock, random });
  #waiting: (() => void)[] = [];
  held = false;
  readonly written: JournalRecord[] = [];

  get state() {
    return this.#inner.state;
  }

  async append(record: JournalRecord): Promise<void> {
    await Promise.all([
      this.#inner.append(record),
      this.held ? new Promise<void>((done) => this.#waiting.push(done)) : 0,
    ]);
    this.written.push(record);
  }

  sync(): void {
    for (const done of this.#waiting.splice(0)) done();
  }

  renew = () => this.#inner.renew();
  close = () => this.#inner.close();
}

/** A task that runs until it is let go. */
function gatedTask() {
  const runs: { id: string; finish: () => void }[] = [];
  const task: AgentTask = defineTask({
    lane: 'parallel',
    params: z.object({}),
    run: (_params, { id, signal }) =>
      new Promise((done, fail) => {
        runs.push({ id, finish: () => done({ ran: id }) });
        signal.addEventListener('abort', () => fail(signal.reason));
      }),
  });
  return { task, runs };
}

function setUp(t: Test, journal: Journal = new HeldJournal(), machine?: Partial<Machine>) {
  const sent: AgentFrame[] = [];
  const outbox = {
    live: true,
    hasRoom: true,
    maxFrameBytes: 1024 * 1024,
    send(frame: AgentFrame) {
      if (outbox.live) sent.push(frame);
      return outbox.live;
    },
  };
  const { task, runs } = gatedTask();
  const serial: AgentTask = { ...task, lane: 'serial' };
  const slow = defineTask({
    lane: 'parallel',
    params: z.object({}),
    run: async (_params, context) => {
      await pause(60_000, context);
      return {};
    },
  });
  const standIn = new StandInMachine({ clock, serverUuid, number: 1, agentVersion: '1', sysinfoSize: 'small' });
  const runner = new Runner({
    clock,
    log: silentLogger,
    serverUuid,
    journal,
    machine: machine ? Object.assign(standIn, machine) : standIn,
    outbox,
    tasks: new Map([...catalogue, ['gated', task], ['serial', serial], ['slow', slow]]),
    allowReboot: false,
  });
  t.teardown(() => runner.abandon());
  const ends = (id?: string) =>
    sent.filter((frame): frame is TaskEndFrame => frame.type === 'task_end' && (id === undefined || frame.id === id));
  const events = (id: string) =>
    sent.flatMap((frame) => (frame.type === 'task_event' && frame.id === id ? [frame.event.name] : []));
  const end = (id: string) => until(() => ends(id)[0], `the end of ${id}`);
  const give = (fields: Partial<TaskFrame> = {}) => {
    const frame = taskFrame({ id: random.uuid(), name: 'gated', ...fields });
    runner.onTask(frame);
    return frame.id;
  };
  return { runner, journal, sent, outbox, runs, ends, events, end, give };
}

const nested = (levels: number): unknown => JSON.parse('['.repeat(levels) + ']'.repeat(levels));

const settled = () => new Promise((done) => setTimeout(done, 20));

t.test('nothing is said before the journal has it, and nothing started', async (t) => {
  const journal = new HeldJournal();
  const { give, sent, runs, events, end } = setUp(t, journal);
  journal.held = true;
  const id = give();
  await settled();
  t.same([sent.length, runs.length], [0, 0], 'not accepted before it is journalled');
  journal.sync();
  await until(() => events(id).length === 1, 'accepted');
  await settled();
  t.same([events(id), runs.length], [['accepted'], 0], 'not started before that is journalled');
  journal.sync();
  await until(() => runs.length === 1, 'a run');
  runs[0]?.finish();
  await settled();
  t.equal(sent.filter((frame) => frame.type === 'task_end').length, 0, 'not ended before that is journalled');
  journal.sync();
  t.match(await end(id), { outcome: 'complete', result: { ran: id } });
  t.same(
    journal.written.map((record) => record.record),
    ['accepted', 'started', 'ended'],
  );
});

t.test('a task given again while it is known never starts again', async (t) => {
  const { give, runs, events, ends, end, runner } = setUp(t);
  const id = give();
  await until(() => runs.length === 1, 'a run');
  give({ id });
  t.same(events(id), ['accepted', 'started', 'accepted']);
  runs[0]?.finish();
  await end(id);
  give({ id });
  t.equal(ends(id).length, 2, 'its end is said again');
  runner.onAck({ type: 'task_ack', id, attempt: 1 });
  give({ id, attempt: 2 });
  await settled();
  t.match(ends(id).at(-1), { attempt: 2, outcome: 'failure', error: { code: 'TaskAlreadyEnded' } });
  t.equal(runs.length, 1);
});

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

t.test('ends are repeated to each new session until they are acknowledged', async (t) => {
  const { give, runs, ends, outbox, runner, journal } = setUp(t);
  const id = give();
  await until(() => runs.length === 1, 'a run');
  outbox.live = false;
  outbox.hasRoom = false;
  runs[0]?.finish();
  await until(() => journal.state.tasks.get(id)?.state === 'ended', 'the end in the journal');
  t.equal(ends(id).length, 0);
  outbox.live = true;
  outbox.hasRoom = true;
  await settled();
  runner.entered();
  t.equal(ends(id).length, 1);
  runner.entered();
  t.equal(ends(id).length, 2);
  runner.onAck({ type: 'task_ack', id, attempt: 2 });
  t.equal(journal.state.tasks.size, 1, 'the acknowledgement of another attempt is not its');
  runner.onAck({ type: 'task_ack', id, attempt: 1 });
  runner.entered();
  t.equal(ends(id).length, 2);
  t.equal(journal.state.tasks.size, 0);
});

t.test('an end that is on its way to the disk is not told by a new session either', async (t) => {
  const journal = new HeldJournal();
  const { give, runs, ends, runner } = setUp(t, journal);
  const id = give();
  await until(() => runs.length === 1, 'a run');
  journal.held = true;
  runs[0]?.finish();
  await until(() => journal.state.tasks.get(id)?.state === 'ended', 'the end in the journal');
  runner.entered();
  runner.tick(1e9);
  t.equal(ends(id).length, 0);
  journal.sync();
  await until(() => ends(id).length > 0, 'the end');
});

t.test('a cancel ends a task in any state, and one that has not come yet', async (t) => {
  const { give, runs, end, ends, runner, journal } = setUp(t);
  const cancel = (id: string, attempt = 1) => runner.onCancel({ type: 'task_cancel', id, attempt });
  const running = give({ name: 'slow' });
  await settled();
  cancel(running);
  t.match(await end(running), { outcome: 'failure', attempt: 1, error: { code: 'Cancelled' } }, 'running');

  const first = give({ name: 'serial' });
  const queued = give({ name: 'serial' });
  await until(() => runs.length === 1, 'the first of its lane');
  cancel(queued);
  t.match(await end(queued), { error: { code: 'Cancelled' } }, 'queued');
  runs[0]?.finish();
  await end(first);
  await settled();
  t.equal(runs.length, 1, 'the cancelled one never ran');

  const unknown = random.uuid();
  cancel(unknown, 3);
  t.match(await end(unknown), { attempt: 3, error: { code: 'Cancelled' } }, 'unknown');
  t.equal(journal.state.tasks.get(unknown)?.state, 'ended', 'journalled: it must not start later');
  give({ id: unknown, attempt: 3 });
  await settled();
  t.equal(runs.length, 1);

  cancel(first);
  t.match(ends(first).at(-1), { outcome: 'complete' }, 'one that has ended keeps its end');
});

t.test('a cancel is for the attempt it names or a lower one: one of an attempt that is over comes late', async (t) => {
  const { give, end, runner, sent, journal } = setUp(t);
  const id = give({ name: 'slow', attempt: 2 });
  await until(() => journal.state.tasks.get(id)?.state === 'running', 'a run');
  const before = sent.length;
  runner.onCancel({ type: 'task_cancel', id, attempt: 1 });
  await settled();
  t.equal(sent.length, before);
  t.equal(journal.state.tasks.get(id)?.state, 'running');
  runner.onCancel({ type: 'task_cancel', id, attempt: 3 });
  t.match(await end(id), { attempt: 3, error: { code: 'Cancelled' } }, 'answered as it was asked');
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
  t.same([events(id), runs.length], [[], 0]);
});

t.test('a timeout ends a task, running or waiting for its turn', async (t) => {
  const { give, end, runs } = setUp(t);
  t.match(await end(give({ name: 'slow', timeoutMs: 30 })), { outcome: 'failure', error: { code: 'TaskTimeout' } });
  give({ name: 'serial' });
  t.match(await end(give({ name: 'serial', timeoutMs: 30 })), { error: { code: 'TaskTimeout' } });
  t.equal(runs.length, 1);
});

t.test('what cannot be run ends at once, with a code that says why', async (t) => {
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

t.test('a paused agent takes nothing but the task that resumes it', async (t) => {
  const { give, end, runner } = setUp(t);
  t.match(await end(give({ name: 'agent_pause' })), { outcome: 'complete' });
  t.ok(runner.isPaused);
  const refused = await end(give({ name: 'nop' }));
  t.match(refused, { error: { code: 'AgentPaused', message: 'CN Agent is not accepting tasks for maintenance' } });
  await end(give({ name: 'agent_resume' }));
  t.match(await end(give({ name: 'nop' })), { outcome: 'complete' });
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

t.test('parallel tasks are bounded, serial ones run one at a time and control tasks pass them all', async (t) => {
  const { give, runs, end } = setUp(t);
  for (let n = 0; n < PARALLEL_TASKS + 5; n++) give();
  give({ name: 'serial' });
  give({ name: 'serial' });
  await until(() => runs.length === PARALLEL_TASKS + 1, 'the lanes to fill');
  await settled();
  t.equal(runs.length, PARALLEL_TASKS + 1);
  t.match(await end(give({ name: 'server_sysinfo' })), {
    outcome: 'complete',
    result: { sysinfo: { UUID: serverUuid } },
  });
  runs[0]?.finish();
  await until(() => runs.length === PARALLEL_TASKS + 2, 'the next');
});

t.test(
  'after a restart: what had started has failed, what was only accepted runs once an instance welcomes',
  async (t) => {
    const journal = new MemoryJournal({ clock, random });
    const group: ProcessGroup = { pgid: 1, startTime: '2', bootId: 'b' };
    const frames = ['accepted', 'running', 'ran'].map((id) => taskFrame({ id, name: 'gated' }));
    for (const task of frames) await journal.append({ record: 'accepted', task });
    await journal.append({ record: 'started', id: 'running', group });
    const killed: ProcessGroup[] = [];
    const endGroup = async (one: ProcessGroup) => void killed.push(one);
    const { runner, runs, ends } = setUp(t, journal, { endGroup });
    await runner.recover();
    t.same(killed, [group], 'what is left of it is ended first');
    t.match(journal.state.tasks.get('running'), { state: 'ended', end: { error: { code: 'AgentRestarted' } } });
    t.equal(ends().length, 0);
    await settled();
    t.equal(runs.length, 0);
    runner.entered();
    t.match(ends(), [{ id: 'running', error: { code: 'AgentRestarted' } }]);
    await until(() => runs.length === 2, 'the accepted ones');
  },
);

t.test('a stop ends what runs and leaves what has not started to the next process', async (t) => {
  const { give, runs, runner, journal, ends } = setUp(t);
  const running = give({ name: 'serial' });
  const queued = give({ name: 'serial' });
  await until(() => runs.length === 1, 'a run');
  await runner.stop();
  t.match(ends(running), [{ outcome: 'failure', error: { code: 'AgentStopped' } }]);
  t.equal(journal.state.tasks.get(queued)?.state, 'accepted');
  t.notOk(journal.state.tasks.has(give()), 'and takes nothing more');
  t.equal(runs.length, 1);
});

t.test('work of a journal that was given up leaves no trace in the next one', async (t) => {
  const { give, runs, runner, journal, ends } = setUp(t);
  give();
  give({ name: 'serial' });
  give({ name: 'serial' });
  await until(() => runs.length === 2, 'runs');
  await runner.abandon();
  await journal.renew();
  await settled();
  t.equal(journal.state.tasks.size, 0);
  t.equal(ends().length, 0);
  t.equal(runs.length, 2);
});

t.test('an error of a task that nobody foresaw is a failure, not the end of the agent', async (t) => {
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
