/**
 * A task: one piece of work for one server's agent, durable, with exactly one end. Pure: its types,
 * and the decision about it when its server comes back (docs/design/tasks.md).
 *
 *              claim: attempt + 1                  the agent's end; timed out; outcome unknown
 *     queued ─────────────────────▶ claimed ───────────────────────────────────────────────▶ ended
 *      │  ▲                            │                                                       ▲
 *      │  └── next attempt ────────────┘                                                       │
 *      └────────────────────────────── cancelled; not taken within taskStartByMs ──────────────┘
 *
 * Callers see queued and claimed both as `active`. An ended task does not change any more.
 */

import type { StatementPart } from '../../../platform/postgres/sql-text.ts';
import type { JsonObject } from '../../../protocol/json/bounded-json.ts';
import type { InventoryFrame } from '../../../protocol/link/frames.ts';
import type { TASK_OUTCOMES } from '../../../protocol/statuses.ts';
import type { CallerTaskName, LegacyTaskName, TaskName } from '../../../protocol/task-name.ts';

export type TaskState = 'queued' | 'claimed' | 'ended';
export type TaskOutcome = (typeof TASK_OUTCOMES)[number];

export interface TaskError {
  code: string;
  message: string;
}

/** Reported by an agent; only the newest is kept. */
interface TaskProgress {
  /** Per cent done. */
  value: number;
  message?: string;
}

export interface TaskRequest {
  serverUuid: string;
  /** Name in the agent's catalogue. */
  name: TaskName | LegacyTaskName | CallerTaskName;
  params: JsonObject;
  /** How long the agent lets it run. Default 3,600,000. */
  timeoutMs?: number;
  /**
   * The task may run again when it is unknown whether it ran. Default by the catalogue
   * (lib/protocol/tasks.ts).
   */
  idempotent?: boolean;
  /** The same key for the same server returns the same task. */
  idempotencyKey?: string;
  requestId?: string;
  /** The actor's name; shown to callers, and not part of the request's identity. */
  actor?: string;
  /** A ticket of the waitlist that must be active for the task to be accepted. */
  ticketUuid?: string;
  /** A record of who asks for it, written in the statement that creates it. */
  record?: StatementPart | undefined;
}

/** What happened to a task, in order of `seq`; the last event is `end`. */
export interface RecordedTaskEvent {
  seq: number;
  name: 'accepted' | 'started' | 'progress' | 'output' | 'retry' | 'end';
  attempt: number;
  /** The database's time. */
  timestamp: string;
  /** The agent's time, if the event is the agent's; for display only. */
  reported_at?: string;
  /**
   * progress: {value, message?}; output: {stream, offset, text}, or {stream, offset, cut: bytes} if
   * the middle of a long stream was dropped; retry: {reason}; end: {status, result?, error?}; else
   * {}.
   */
  data: JsonObject;
}

/** The served columns of a row of cnapi_tasks. Times are the database's. */
export interface TaskRow {
  id: string;
  server_uuid: string;
  name: string;
  params: JsonObject;
  timeout_ms: number;
  idempotent: boolean;
  req_id: string | null;
  ticket_uuid: string | null;
  state: TaskState;
  outcome: TaskOutcome | null;
  attempt: number;
  created_at: Date;
  accepted_at: Date | null;
  started_at: Date | null;
  cancel_requested_at: Date | null;
  ended_at: Date | null;
  progress: TaskProgress | null;
  progress_at: Date | null;
  result: JsonObject | null;
  error: TaskError | null;
}

export const DEFAULT_TASK_TIMEOUT_MS = 3_600_000;

/**
 * If a cancel was sent for a task although no caller had requested it, the task was past its
 * timeout.
 */
export function endError(row: Pick<TaskRow, 'error' | 'cancel_requested_at'>): TaskError | null {
  if (row.error?.code !== 'Cancelled' || row.cancel_requested_at !== null) return row.error;
  return { code: 'TaskTimeout', message: 'the task ran past its timeout and was cancelled' };
}

/** Ends that the control plane itself writes; all are failures. */
export const taskEnds = {
  cancelled: { code: 'Cancelled', message: 'cancelled before the server took the task' },
  cancelledUncertain: { code: 'Cancelled', message: 'cancelled; whether it had run before is unknown' },
  notTaken: { code: 'NotTaken', message: 'the server did not take the task' },
  notReadAgain: {
    code: 'OutcomeUnknown',
    message: 'the task was too large for the network when it was to be sent again; whether it ran is unknown',
  },
  notRead: { code: 'NotTaken', message: 'the task was too large for the network between the database and cnapi' },
  outcomeUnknown: {
    code: 'OutcomeUnknown',
    message: 'the server lost its record of the task; whether it ran is unknown',
  },
  notTakenAgain: {
    code: 'OutcomeUnknown',
    message: 'the server lost its record of the task and did not take it again; whether it ran is unknown',
  },
  senderLost: {
    code: 'OutcomeUnknown',
    message: 'the instance that had sent the task to its server is gone; whether the task ran is unknown',
  },
  timedOut: { code: 'TaskTimeout', message: 'the server did not report an end in time; the outcome is unknown' },
  unknownTask: { code: 'UnknownTask', message: "the server's agent does not know this task" },
} as const satisfies Record<string, TaskError>;

/** A claimed task of an earlier session, as its server's new session finds it. */
export interface InheritedTask {
  id: string;
  attempt: number;
  /** The agent's journal at the time of the claim. */
  journalId: string;
  idempotent: boolean;
  /** An earlier attempt may have run. */
  uncertain: boolean;
  /** The agent has reported that this attempt was on its disk. */
  wasAccepted: boolean;
  /** The agent has reported that this attempt, or the one that it has, began. */
  hasStarted: boolean;
  cancelRequested: boolean;
}

/**
 * A task is not tried again after this many attempts failed to deliver it: it may be what crashes
 * its agent.
 */
export const MAX_ATTEMPTS = 20;

/** What the agent's inventory reports about one task. */
export type KnownTask = Pick<InventoryFrame['tasks'][number], 'attempt' | 'state' | 'held'>;

export type InventoryDecision =
  /** The agent has it. */
  | { kind: 'goes-on'; started: boolean }
  /** Back to the queue. Uncertain: the earlier attempt may have run. */
  | { kind: 'next-attempt'; uncertain: boolean }
  | { kind: 'fail'; error: TaskError };

/**
 * Decides about a claimed task once its agent, under a new epoch, has reported what it knows
 * (docs/design/tasks.md). Sound because from its welcome on the agent refuses frames of lower
 * epochs: a task that its inventory lacks cannot reach it later.
 */
export function decideAtInventory(
  task: InheritedTask,
  agent: { journalId: string; known: KnownTask | undefined },
): InventoryDecision {
  // A journal that has lost a task it had on disk, or its start, was rolled back. This can happen
  // within one session, where no epoch shows it. What is not held may have begun since the
  // inventory.
  const hasLostStart = task.hasStarted && agent.known?.held === true && agent.known.state === 'accepted';
  const isRolledBack = hasLostStart || (task.wasAccepted && agent.known === undefined);
  if (agent.known?.attempt === task.attempt && (task.idempotent || !hasLostStart))
    return { kind: 'goes-on', started: agent.known.state !== 'accepted' };
  const isLost = agent.journalId !== task.journalId || isRolledBack;
  const uncertain = task.uncertain || isLost;
  if (task.cancelRequested)
    return { kind: 'fail', error: uncertain ? taskEnds.cancelledUncertain : taskEnds.cancelled };
  if (isLost && !task.idempotent) return { kind: 'fail', error: taskEnds.outcomeUnknown };
  if (task.attempt >= MAX_ATTEMPTS)
    return { kind: 'fail', error: uncertain ? taskEnds.notTakenAgain : taskEnds.notTaken };
  return { kind: 'next-attempt', uncertain: isLost };
}
