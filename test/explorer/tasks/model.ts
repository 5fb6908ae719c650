/**
 * What the statements of lib/control/tasks do to one task's row, written a second time for the
 * small worlds. `tasks-conformance.test.ts` compares it with the statements themselves.
 */
import {
  type InventoryDecision,
  type TaskError,
  type TaskOutcome,
  type TaskState,
  taskEnds,
} from '../../../lib/control/tasks/store/task.ts';

export interface TaskRow {
  state: TaskState;
  outcome: TaskOutcome | null;
  error: TaskError | null;
  attempt: number;
  epoch: number | null;
  journalId: string | null;
  uncertain: boolean;
  idempotent: boolean;
  isAccepted: boolean;
  isStarted: boolean;
  cancelRequested: boolean;
}

/** The parts of the server's roster row that fence tasks. */
export interface Fence {
  run: string;
  epoch: number;
  isRunning: boolean;
}

export interface Claimant {
  run: string;
  epoch: number;
  journalId: string;
}

export function newTask(idempotent: boolean): TaskRow {
  return {
    state: 'queued',
    outcome: null,
    error: null,
    attempt: 0,
    epoch: null,
    journalId: null,
    uncertain: false,
    idempotent,
    isAccepted: false,
    isStarted: false,
    cancelRequested: false,
  };
}

const isFencedBy = (fence: Fence, { run, epoch }: Claimant): boolean => fence.run === run && fence.epoch === epoch;

function ended(task: TaskRow, outcome: TaskOutcome, error: TaskError | null): TaskRow {
  return { ...task, state: 'ended', outcome, error };
}

/** `claimTasks`, with one queued task; undefined: it is not given. */
export function claim(task: TaskRow, fence: Fence, claimant: Claimant): TaskRow | undefined {
  if (task.state !== 'queued' || !isFencedBy(fence, claimant) || !fence.isRunning) return undefined;
  const { epoch, journalId } = claimant;
  return { ...task, state: 'claimed', attempt: task.attempt + 1, epoch, journalId };
}

/** Whether `claimTasks` tells this session to cancel it; again only after a while. */
export function isToCancel(task: TaskRow, { epoch }: Pick<Claimant, 'epoch'>): boolean {
  return task.state === 'claimed' && task.cancelRequested && task.epoch === epoch;
}

/** Whether `resendTasks` sends it again, when it was sent long enough ago. */
export function isToResend(task: TaskRow, { epoch }: Pick<Claimant, 'epoch'>): boolean {
  return task.state === 'claimed' && !task.isAccepted && task.epoch === epoch;
}

/** `readInheritedTasks`. */
export function isInherited(task: TaskRow, { epoch }: Pick<Claimant, 'epoch'>): boolean {
  return task.state === 'claimed' && (task.epoch ?? 0) < epoch;
}

/** A task as it was read when a decision about it was made. */
export type AsRead = Pick<TaskRow, 'attempt' | 'cancelRequested'>;

/**
 * `settleInventory`, with one task; undefined: the task has changed, or the session has lost the
 * row.
 */
export function settle(
  task: TaskRow,
  fence: Fence,
  { claimant, read, decision }: { claimant: Claimant; read: AsRead; decision: InventoryDecision },
): TaskRow | undefined {
  const isAsRead = task.attempt === read.attempt && task.cancelRequested === read.cancelRequested;
  if (!isInherited(task, claimant) || !isAsRead || !isFencedBy(fence, claimant)) return undefined;
  const { epoch, journalId } = claimant;
  const mine = { ...task, epoch, journalId };
  switch (decision.kind) {
    case 'goes-on':
      return { ...mine, isAccepted: true, isStarted: task.isStarted || decision.started };
    case 'next-attempt':
      return {
        ...mine,
        state: 'queued',
        isAccepted: false,
        isStarted: false,
        uncertain: task.uncertain || decision.uncertain,
      };
    case 'fail':
      return { ...ended(mine, 'failure', decision.error), isAccepted: true };
    default:
      return decision satisfies never;
  }
}

export type ReportOf =
  | { name: 'accepted' | 'started' | 'complete'; attempt: number }
  | { name: 'failure'; attempt: number; error: TaskError };

/**
 * `recordReports`, with one report; undefined: it is not for the current attempt of a claimed task.
 */
export function record(task: TaskRow, report: ReportOf): TaskRow | undefined {
  if (task.state !== 'claimed' || task.attempt !== report.attempt) return undefined;
  switch (report.name) {
    case 'accepted':
      return { ...task, isAccepted: true };
    case 'started':
      return { ...task, isAccepted: true, isStarted: true };
    case 'complete':
      return ended(task, 'complete', null);
    case 'failure':
      return ended(task, 'failure', report.error);
    default:
      return report satisfies never;
  }
}

/** `cancelTask`; undefined: it has ended. */
export function cancel(task: TaskRow): TaskRow | undefined {
  if (task.state === 'ended') return undefined;
  const asked = { ...task, cancelRequested: true };
  if (task.state === 'claimed') return { ...asked, error: null };
  return ended(asked, 'failure', task.uncertain ? taskEnds.cancelledUncertain : taskEnds.cancelled);
}

/** `sweepTasks`, with one task that is queued for too long, or claimed and far beyond its time. */
export function sweep(task: TaskRow): TaskRow | undefined {
  if (task.state === 'ended') return undefined;
  if (task.state === 'claimed') return ended(task, 'failure', taskEnds.timedOut);
  return ended(task, 'failure', task.uncertain ? taskEnds.notTakenAgain : taskEnds.notTaken);
}
