/** The driver of push jobs on an agent: votes, waits, withdrawals, and what an abort ends. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import type { ProcessGroup } from '../../../lib/agent/journal/journal.ts';
import { openLinuxMachine } from '../../../lib/agent/machine/linux-machine.ts';
import { allProcesses } from '../../../lib/agent/machine/proc.ts';
import { PushParticipant, type PushParticipantDeps } from '../../../lib/agent/push/push-participant.ts';
import type { PrepareRefusal } from '../../../lib/agent/push/refusal.ts';
import { pushTasks } from '../../../lib/agent/push/tasks.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import { systemRandom as random } from '../../../lib/platform/random.ts';
import { type Clock, systemClock } from '../../../lib/platform/time/clock.ts';
import type { AgentFrame } from '../../../lib/protocol/link/frames.ts';
import { until } from '../../support/until.ts';
import { prepareFrame } from './prepare-frame.ts';

/** A node whose timers fire when the test says so. */
function node(fields: Partial<PushParticipantDeps> = {}) {
  const sent: AgentFrame[] = [];
  const timers = new Map<number, () => void>();
  const clock: Clock = {
    ...systemClock,
    after(ms, fire) {
      timers.set(ms, fire);
      return { cancel: () => void timers.delete(ms) };
    },
  };
  const send = (frame: AgentFrame) => sent.push(frame) > 0;
  const deps = { clock, log: silentLogger, serverUuid: random.uuid(), send, refusalOf: async () => undefined };
  const made = new PushParticipant({ ...deps, ...fields });
  made.recovered();
  made.sessionOpened();
  return { node: made, timers, sent: () => sent.splice(0) };
}

const started = (made: PushParticipant, job: string) => () => made.begin(job);
const refused = { code: 'StartRefused', message: /nothing was started/ };

t.test('a ready agent votes again in a new session, and only once in the same one', async (t) => {
  const { node: made, sent } = node();
  const prepare = prepareFrame();
  await made.onPrepare(prepare);
  const yes = { type: 'push_vote', job: prepare.job, ready: true };
  t.same(sent(), [yes]);
  made.sessionOpened();
  t.same(sent(), [yes]);
  await made.onPrepare(prepare);
  t.same(sent(), [yes], 'the same prepare is answered again');
  t.equal(made.begin(prepare.job).prepare, prepare);
  made.sessionOpened();
  t.same(sent(), [], 'a job that runs is not voted for');
});

t.test('an abort while the command is checked leaves no vote behind', async (t) => {
  const check = Promise.withResolvers<undefined>();
  const { node: made, sent } = node({ refusalOf: () => check.promise });
  const prepare = prepareFrame();
  const answered = made.onPrepare(prepare);
  made.onAbort({ type: 'push_abort', job: prepare.job });
  t.same(sent(), [{ type: 'push_aborted', job: prepare.job }]);
  check.resolve(undefined);
  await answered;
  t.same(sent(), []);
  t.throws(started(made, prepare.job), refused);
});

t.test('a prepare that is repeated while the command is checked does not begin another check', async (t) => {
  const check = Promise.withResolvers<undefined>();
  const checked: string[] = [];
  const { node: made, sent } = node({
    refusalOf({ job }) {
      checked.push(job);
      return check.promise;
    },
  });
  const prepare = prepareFrame();
  const answers = [made.onPrepare(prepare), made.onPrepare({ ...prepare }), made.onPrepare({ ...prepare })];
  check.resolve(undefined);
  await Promise.all(answers);
  t.same(checked, [prepare.job]);
  t.same(sent(), [{ type: 'push_vote', job: prepare.job, ready: true }]);
});

t.test('of two jobs that are checked concurrently, the one that is checked first has the agent', async (t) => {
  const checks = [Promise.withResolvers<undefined>(), Promise.withResolvers<undefined>()];
  const [first, second] = [prepareFrame({ readyMs: 7_000 }), prepareFrame({ readyMs: 9_000 })];
  const {
    node: made,
    sent,
    timers,
  } = node({ refusalOf: ({ job }) => checks[job === first.job ? 0 : 1]?.promise as never });
  const answers = [made.onPrepare(first), made.onPrepare(second)];
  for (const { resolve } of checks) resolve(undefined);
  await Promise.all(answers);
  t.same(sent(), [
    { type: 'push_vote', job: first.job, ready: true },
    { type: 'push_vote', job: second.job, ready: false, reason: 'busy', busyWith: first.job },
  ]);
  t.same([...timers.keys()], [7_000]);
  t.equal(made.begin(first.job).prepare, first);
});

t.test('an agent that is busy when it has checked a job says only that', async (t) => {
  const check = Promise.withResolvers<PrepareRefusal>();
  const [first, second] = [prepareFrame(), prepareFrame()];
  const { node: made, sent } = node({ refusalOf: async ({ job }) => (job === first.job ? undefined : check.promise) });
  const answered = made.onPrepare(second);
  await made.onPrepare(first);
  check.resolve({ reason: 'not-allowed', message: 'the list does not have it' });
  await answered;
  t.same(sent(), [
    { type: 'push_vote', job: first.job, ready: true },
    { type: 'push_vote', job: second.job, ready: false, reason: 'busy', busyWith: first.job },
  ]);
});

t.test('an agent that refused a job does not wait for its start', async (t) => {
  const { node: made, timers } = node({ refusalOf: async () => ({ reason: 'paused', message: 'it is paused' }) });
  await made.onPrepare(prepareFrame());
  t.equal(timers.size, 0);
});

t.test('at most 16 jobs are checked concurrently; another one is asked again later', async (t) => {
  const check = Promise.withResolvers<undefined>();
  const checked: string[] = [];
  const refusalOf = ({ job }: { job: string }) => {
    checked.push(job);
    return check.promise;
  };
  const { node: made } = node({ refusalOf });
  const prepares = Array.from({ length: 17 }, () => prepareFrame());
  const answers = prepares.map((prepare) => made.onPrepare(prepare));
  t.equal(checked.length, 16);
  check.resolve(undefined);
  await Promise.all(answers);
});

t.test('a prepare that arrives after the command has run is ignored', async (t) => {
  const { node: made, sent } = node();
  const prepare = prepareFrame();
  await made.onPrepare(prepare);
  made.begin(prepare.job).ended();
  sent();
  await made.onPrepare(prepare);
  t.same(sent(), []);
  const next = prepareFrame();
  await made.onPrepare(next);
  t.same(sent(), [{ type: 'push_vote', job: next.job, ready: true }], 'it is free for the next job');
});

t.test('an agent that waited for its start too long withdraws its vote, and starts nothing', async (t) => {
  const { node: made, timers, sent } = node();
  const prepare = prepareFrame({ readyMs: 7_000 });
  await made.onPrepare(prepare);
  sent();
  timers.get(7_000)?.();
  t.same(sent(), [{ type: 'push_vote', job: prepare.job, ready: false, reason: 'waited-too-long' }]);
  t.throws(started(made, prepare.job), refused);
  const next = prepareFrame({ readyMs: 9_000 });
  await made.onPrepare(next);
  t.ok(timers.has(9_000));
  made.begin(next.job);
  t.notOk(timers.has(9_000), 'the start came');
});

t.test('an agent that stops withdraws its vote, and gives no other', async (t) => {
  const check = Promise.withResolvers<undefined>();
  const {
    node: made,
    sent,
    timers,
  } = node({
    refusalOf: ({ command }) => (command === 'slow' ? check.promise : Promise.resolve(undefined)),
  });
  const [prepare, slow, late] = [prepareFrame(), prepareFrame({ command: 'slow' }), prepareFrame()];
  const checking = made.onPrepare(slow);
  await made.onPrepare(prepare);
  sent();
  t.equal(timers.size, 1);
  made.stop();
  t.equal(timers.size, 0);
  const no = { type: 'push_vote', ready: false, reason: 'stopping' };
  t.same(sent(), [
    { ...no, job: slow.job },
    { ...no, job: prepare.job },
  ]);
  check.resolve(undefined);
  await checking;
  t.throws(started(made, prepare.job), refused);
  await made.onPrepare(late);
  t.same(sent(), [{ ...no, job: late.job }]);
});

t.test('a second job is refused with the id of the first, without a check', async (t) => {
  const checked: string[] = [];
  const { node: made, sent } = node({ refusalOf: async ({ job }) => void checked.push(job) as undefined });
  const [first, second] = [prepareFrame(), prepareFrame()];
  await made.onPrepare(first);
  sent();
  await made.onPrepare(second);
  const busy = { type: 'push_vote', job: second.job, ready: false, reason: 'busy', busyWith: first.job };
  t.same(sent(), [busy]);
  made.begin(first.job);
  await made.onPrepare(second);
  t.same(sent(), [busy]);
  t.same(checked, [first.job]);
});

t.test('a command gets each limit that comes before its start or while it runs', async (t) => {
  const { node: made } = node();
  const { job, ...rest } = prepareFrame();
  const limits: number[] = [];
  const limit = (timeoutMs: number, of = job) => made.onTimeout({ type: 'push_timeout', job: of, timeoutMs });
  limit(1_000);
  await made.onPrepare({ job, ...rest });
  limit(2_000, random.uuid());
  limit(3_000);
  limit(4_000);
  const { ended } = made.begin(job, (timeoutMs) => limits.push(timeoutMs));
  t.same(limits, [4_000], 'the last one of its job');
  limit(5_000);
  limit(5_000);
  limit(6_000, random.uuid());
  t.same(limits, [4_000, 5_000], 'each once');
  ended();
  limit(7_000);
  const next = prepareFrame();
  await made.onPrepare(next);
  made.begin(next.job, (timeoutMs) => limits.push(timeoutMs));
  t.same(limits, [4_000, 5_000], 'the next job has none of them');
});

t.test('a check that fails is a vote against the job, with the reason', async (t) => {
  const { node: made, sent } = node({ refusalOf: async () => Promise.reject(new Error('no memory')) });
  const { job, ...rest } = prepareFrame();
  await made.onPrepare({ job, ...rest });
  const message = 'the command could not be checked: no memory';
  t.same(sent(), [{ type: 'push_vote', job, ready: false, reason: 'bad-options', message }]);
});

async function onRealMachine(t: Test, command: string) {
  const runDirectory = await mkdtemp(join(tmpdir(), 'push-node-'));
  t.teardown(() => rm(runDirectory, { recursive: true, force: true }));
  const rig = node();
  const prepare = prepareFrame({ command });
  await rig.node.onPrepare(prepare);
  rig.sent();
  const groups: ProcessGroup[] = [];
  const output: string[] = [];
  const context = {
    id: random.uuid(),
    signal: new AbortController().signal,
    machine: await openLinuxMachine({ clock: systemClock, serverUuid: random.uuid(), agentVersion: '1', runDirectory }),
    begin: async (group: ProcessGroup) => void groups.push(group),
    output: (_stream: string, _offset: number, text: string) => void output.push(text),
    pushJobs: rig.node,
    changeTimeout: () => {},
  };
  const end = pushTasks.push_command.run(
    { job: prepare.job },
    context as unknown as Parameters<typeof pushTasks.push_command.run>[1],
  );
  return { ...rig, job: prepare.job, end, groups, output };
}

const aliveIn = async (groups: readonly ProcessGroup[]) =>
  (await allProcesses()).filter((one) => one.pgid === groups[0]?.pgid && one.state !== 'Z').length;

t.test('an abort kills the whole group of the command, and is answered when nothing runs any more', async (t) => {
  const rig = await onRealMachine(t, 'trap "" TERM; sleep 1000 & echo up; while :; do sleep 0.1; done');
  const ended = rig.end.catch((error: unknown) => error);
  await until(() => rig.output.length > 0, 'the command to run');
  t.ok((await aliveIn(rig.groups)) >= 2);
  rig.node.onAbort({ type: 'push_abort', job: rig.job });
  t.same(rig.sent(), [], 'the command still runs');
  t.same(rig.node.state, { name: 'terminating', jobId: rig.job });
  t.match(await ended, { code: 'Aborted', result: { stdout: 'up\n' } });
  t.equal(await aliveIn(rig.groups), 0);
  t.same(rig.sent(), [{ type: 'push_aborted', job: rig.job }]);
  t.same(rig.node.state, { name: 'ready' });
});
