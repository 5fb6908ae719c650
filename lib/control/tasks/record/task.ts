/**
 * A task: one piece of work for one server's agent, durable, with exactly one end. Pure: its types,
 * how it is served (like Triton's, docs/compatibility.md), and the decision about it when
 * its server comes back (docs/design/tasks.md).
 *
 *              claim: attempt + 1                  the agent's end; timed out; outcome unknown
 *     queued ─────────────────────▶ claimed ───────────────────────────────────────────────▶ ended
 *      │  ▲                            │                                                       ▲
 *      │  └── next attempt ────────────┘                                                       │
 *      └────────────────────────────── cancelled; not taken within startBy ────────────────────┘
 *
 * Queued and claimed are both served as `active`. An ended task does not change any more.
 */

import type { StatementPart } from '../../../platform/sql-text.ts';
import type { Task } from '../../../protocol/api/tasks.ts';
import type { JsonObject } from '../../../protocol/bounded-json.ts';
import type { InventoryFrame } from '../../../protocol/frames.ts';

export type TaskState = 'queued' | 'claimed' | 'ended';
export type TaskOutcome = 'complete' | 'failure';

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
  name: string;
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
  /** The requester's name; shown to callers, and not part of the request's identity. */
  actor?: string;
  /** A ticket of the waitlist that must be active for the task to be accepted. */
  ticketUuid?: string;
  /** A record of who asks for it, written in the statement that creates it. */
  record?: StatementPart | undefined;
}

/**
 * One entry of `GET /servers/:uuid/task-history`, with Triton's agent's keys and the task's
 * id.
 */
export interface ServerTaskHistoryEntry {
  id: string;
  task: string;
  params: JsonObject;
  status: 'active' | 'finished' | 'failed';
  started_at: string;
  finished_at?: string;
  errorCount: number;
  messages: string[];
  log: string[];
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

export function toTask(row: TaskRow): Task {
  return {
    id: row.id,
    ...(row.req_id === null ? {} : { req_id: row.req_id }),
    task: row.name,
    server_uuid: row.server_uuid,
    status: row.outcome ?? 'active',
    timestamp: row.created_at.toISOString(),
    history: historyOf(row),
    params: row.params,
    attempt: row.attempt,
    timeout_ms: row.timeout_ms,
    idempotent: row.idempotent,
    cancel_requested: row.cancel_requested_at !== null,
    ...(row.ticket_uuid === null ? {} : { ticket_uuid: row.ticket_uuid }),
    ...(row.started_at === null ? {} : { started_at: row.started_at.toISOString() }),
    ...(row.ended_at === null ? {} : { finished_at: row.ended_at.toISOString() }),
  };
}

/** For an ended task, exactly what Triton's CNAPI keeps; before the end, its progress. */
function historyOf(row: TaskRow): Task['history'] {
  if (row.ended_at !== null) return endHistory(row, row.ended_at.toISOString());
  const steps: [string, Date | null, JsonObject][] = [
    ['accepted', row.accepted_at, {}],
    ['started', row.started_at, {}],
    ['progress', row.progress_at, { ...row.progress }],
  ];
  return steps.flatMap(([name, at, event]) => (at === null ? [] : [{ name, timestamp: at.toISOString(), event }]));
}

function endHistory(row: TaskRow, timestamp: string): Task['history'] {
  if (row.outcome === 'complete') return [{ name: 'finish', timestamp, event: row.result ?? {} }];
  const { code, message } = endError(row) ?? { code: 'Failed', message: 'no error given' };
  return [
    { name: 'error', timestamp, event: { error: { message, code } } },
    { name: 'finish', timestamp, event: row.result ?? {} },
  ];
}

/**
 * If a cancel was sent for a task although no caller had requested it, the task was past its
 * timeout.
 */
export function endError(row: Pick<TaskRow, 'error' | 'cancel_requested_at'>): TaskError | null {
  if (row.error?.code !== 'Cancelled' || row.cancel_requested_at !== null) return row.error;
  return { code: 'TaskTimeout', message: 'the task ran past its timeout and was cancelled' };
}

export function toServerHistoryEntry(row: TaskRow): ServerTaskHistoryEntry {
  const error = row.outcome === 'failure' ? endError(row) : null;
  return {
    id: row.id,
    task: row.name,
    params: row.params,
    status: row.outcome === null ? 'active' : row.outcome === 'complete' ? 'finished' : 'failed',
    started_at: (row.started_at ?? row.created_at).toISOString(),
    ...(row.ended_at === null ? {} : { finished_at: row.ended_at.toISOString() }),
    errorCount: row.outcome === 'failure' ? 1 : 0,
    messages: error === null ? [] : [error.message],
    log: [],
  };
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
    message: 'the instance that had handed the task to a legacy agent is gone; whether the task ran is unknown',
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
  cancelRequested: boolean;
}

/**
 * A task is not tried again after this many attempts failed to deliver it: it may be what crashes
 * its agent.
 */
export const MAX_ATTEMPTS = 20;

/** What the agent's inventory reports about one task. */
export type KnownTask = Pick<InventoryFrame['tasks'][number], 'attempt' | 'state'>;

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
  if (agent.known?.attempt === task.attempt) return { kind: 'goes-on', started: agent.known.state !== 'accepted' };
  // A journal that has lost a task it had on disk was rolled back. This can happen within one
  // session, where no epoch shows it.
  const isRolledBack = task.wasAccepted && agent.known === undefined;
  const isLost = agent.journalId !== task.journalId || isRolledBack;
  const uncertain = task.uncertain || isLost;
  if (task.cancelRequested)
    return { kind: 'fail', error: uncertain ? taskEnds.cancelledUncertain : taskEnds.cancelled };
  if (isLost && !task.idempotent) return { kind: 'fail', error: taskEnds.outcomeUnknown };
  if (task.attempt >= MAX_ATTEMPTS)
    return { kind: 'fail', error: uncertain ? taskEnds.notTakenAgain : taskEnds.notTaken };
  return { kind: 'next-attempt', uncertain: isLost };
}
