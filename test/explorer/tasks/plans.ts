/** The worlds of tasks, and their deliberate defects. */
import { answerTask } from '../../../lib/agent/runner/answers.ts';
import { decideAtInventory, taskEnds } from '../../../lib/control/tasks/store/task.ts';
import { type BrokenWorld, type Plan, planOf } from '../plan.ts';
import { type Rules, rules } from './rules.ts';
import type { TaskBounds } from './state.ts';
import { taskWorld } from './world.ts';

const ONCE = [false];
const AGAIN = [true];

const given: TaskBounds = { name: 'a task is dispatched', idempotent: ONCE, faults: { lostAnswer: 1, resend: 1 } };
const late: TaskBounds = { name: 'it is sent late', idempotent: ONCE, faults: { lateOrder: 1, resend: 1 } };
const lost: TaskBounds = { name: 'its session is lost', idempotent: ONCE, faults: { cut: 2, lostAnswer: 1 } };
const swept: TaskBounds = { name: 'it is swept', idempotent: ONCE, faults: { cut: 1, sweep: 1 } };
const cancelled: TaskBounds = { name: 'it is cancelled', idempotent: ONCE, faults: { cut: 1, cancel: 1 } };
const restarted: TaskBounds = { name: 'its agent restarts', idempotent: ONCE, faults: { crashAgent: 1 } };
const moved: TaskBounds = { name: 'its agent moves', idempotent: ONCE, faults: { move: 1 } };
const died: TaskBounds = { name: 'its instance dies', idempotent: ONCE, faults: { crashInstance: 1, lostAnswer: 1 } };
const journal: TaskBounds = { name: 'its journal is lost', idempotent: ONCE, faults: { loseJournal: 1 } };
const again: TaskBounds = {
  name: 'the journal of one that may run again is lost',
  idempotent: AGAIN,
  faults: { loseJournal: 1, cancel: 1 },
};
/**
 * Even a task that may not run again can: a start that was never reported, and that its disk has
 * forgotten, leaves no trace.
 */
const rolledBack: TaskBounds = {
  name: 'its journal is rolled back',
  idempotent: AGAIN,
  faults: { rollBackJournal: 1 },
};
const two: TaskBounds = { name: 'two tasks', idempotent: [false, true], faults: {} };

const MAX_STATES = 100_000;
const MAX_DEEP_STATES = 3_000_000;

export const taskPlans: Plan[] = [
  given,
  late,
  lost,
  swept,
  cancelled,
  restarted,
  moved,
  died,
  journal,
  rolledBack,
  again,
  two,
].map((bounds) => planOf(taskWorld(bounds), MAX_STATES));

export const deepTaskPlans: Plan[] = [
  { name: 'two tasks, a session is lost', idempotent: [false, true], faults: { cut: 1 } },
  { name: 'its agent moves, and it is cancelled', idempotent: ONCE, faults: { move: 1, cancel: 1 } },
  { name: 'its agent restarts, and a session is lost', idempotent: ONCE, faults: { crashAgent: 1, cut: 1 } },
  { name: 'it is cancelled and swept, sessions are lost', idempotent: ONCE, faults: { cut: 2, cancel: 1, sweep: 1 } },
].map((bounds) => planOf(taskWorld(bounds), MAX_DEEP_STATES));

const broken = (defect: string, bounds: TaskBounds, change: Partial<Rules>, complaint: RegExp): BrokenWorld => ({
  defect,
  run: () => planOf(taskWorld(bounds, { ...rules, ...change }), MAX_STATES).explore(),
  complaint,
});

export const brokenTasks: BrokenWorld[] = [
  broken(
    'a task goes back to the queue though its agent has another journal',
    journal,
    { decideAtInventory: (task, agent) => decideAtInventory({ ...task, journalId: agent.journalId }, agent) },
    /may not be run again/,
  ),
  broken(
    'an agent starts a task again whose end was acknowledged',
    late,
    { answerTask: (state, frame) => answerTask({ ...state, acknowledged: new Map() }, frame) },
    /may not be run again/,
  ),
  broken('an agent starts a task before the disk has it', restarted, { waitsForDisk: false }, /unknown although/),
  broken(
    'a task is claimed by a session that has lost the row',
    moved,
    { claim: (task, _fence, claimant) => rules.claim(task, { ...claimant, isRunning: true }, claimant) },
    /no end can be reached/,
  ),
  broken(
    'an end is acknowledged before it is recorded',
    died,
    { recordsFirst: false },
    /unknown although|had ended before/,
  ),
  broken(
    'an end is recorded of a task that has ended',
    swept,
    {
      record: (task, report) =>
        rules.record(task, report) ??
        (task.attempt === report.attempt && report.name === 'complete' ? { ...task, outcome: 'complete' } : undefined),
    },
    /has ended 2 times/,
  ),
  broken(
    'a task whose agent lost its journal counts as never started when it is cancelled',
    again,
    {
      decideAtInventory: (task, agent) =>
        task.cancelRequested ? { kind: 'fail', error: taskEnds.cancelled } : decideAtInventory(task, agent),
    },
    /reported as not run/,
  ),
];
