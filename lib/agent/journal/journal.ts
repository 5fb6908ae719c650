/**
 * An agent's record of its tasks, as data: records fold into the state one after the other. Ids of
 * acknowledged tasks are kept for 10 minutes. Pure; journal-file.ts keeps it on disk and
 * journal-memory.ts in memory. docs/design/tasks.md.
 *
 *                                                ┌─ restarted, processes ─┐
 *                                                ▼                        │
 *     (unknown) ── accepted ──► accepted ── started ──► running ───────┴─ ended ──► ended ── acknowledged
 *         │                        └──────────────────────────────────────────▲
 *         └── ended (refused, or cancelled before it came) ───────────────────┘
 */

import { definedFields } from '../../platform/defined-fields.ts';
import { MAX_INVENTORY_TASKS } from '../../protocol/limits.ts';
import type { InventoryFrame, TaskEndFrame, TaskFrame } from '../../protocol/link/frames.ts';
import { isPostedId } from './posted-id.ts';

/** The processes of a running task: one group, led by one process, in one boot of the machine. */
export interface ProcessGroup {
  pgid: number;
  /** Start of the leader, in clock ticks since boot. A pid alone may be reused. */
  startTime: string;
  bootId: string;
}

export type JournalRecord =
  | { record: 'begin'; version: 1; journalId: string; epoch: number }
  | { record: 'epoch'; epoch: number }
  | { record: 'accepted'; task: TaskFrame }
  /** `at`: only for a task that continues in the next process. */
  | { record: 'started'; id: string; group?: ProcessGroup; at?: number }
  /**
   * A later process continues the task; `starts` counts the first start, too. Older versions ignore
   * this record.
   */
  | { record: 'restarted'; id: string; starts: number }
  /**
   * The processes of a task that runs; without a group it has none now. Older versions ignore this
   * record.
   */
  | { record: 'processes'; id: string; group?: ProcessGroup }
  | { record: 'ended'; end: TaskEndFrame }
  /** The task continues under a later attempt. */
  | { record: 'renumbered'; id: string; attempt: number }
  | { record: 'acknowledged'; id: string };

interface RunningTask {
  state: 'running';
  id: string;
  attempt: number;
  task: TaskFrame;
  bytes: number;
  group?: ProcessGroup;
  /** When it was first started, by the wall clock in milliseconds. */
  startedAt?: number;
  starts: number;
}

export type JournalTask =
  | { state: 'accepted'; id: string; attempt: number; task: TaskFrame; bytes: number }
  | RunningTask
  | { state: 'ended'; id: string; attempt: number; end: TaskEndFrame; bytes: number };

export interface JournalState {
  journalId: string;
  epoch: number;
  /** Every task whose end is not acknowledged. */
  tasks: Map<string, JournalTask>;
  /** Ids of acknowledged ends, oldest first, with the time (this process's clock). */
  acknowledged: Map<string, number>;
  /** Bytes of the records that made `tasks`. */
  liveBytes: number;
}

/** What the runner and the link write to. */
export interface Journal {
  /** Includes every appended record, also those not yet on disk. */
  readonly state: JournalState;
  /**
   * Folds the record immediately. Resolves when it and all records before it survive a crash of the
   * machine. Never rejects.
   */
  append(record: JournalRecord): Promise<void>;
  /** Begins a new journal: another id, epoch 0, no tasks. */
  renew(): Promise<void>;
  close(): Promise<void>;
}

export const ACKNOWLEDGED_KEPT_MS = 600_000;
const MAX_ACKNOWLEDGED = 100_000;
export const MAX_LIVE_BYTES = 64 * 1024 * 1024;
const SHORT_END_BYTES = 4096;
const COMPACT_FROM_BYTES = 1024 * 1024;

export class JournalRecordError extends Error {
  constructor(record: JournalRecord, reason: string) {
    super(`journal: record ${record.record} does not fit: ${reason}`);
    this.name = 'JournalRecordError';
  }
}

export function newJournal(journalId: string): JournalState {
  return { journalId, epoch: 0, tasks: new Map(), acknowledged: new Map(), liveBytes: 0 };
}

/**
 * Folds one record, of `bytes` on disk, into the state (in place). @throws JournalRecordError if
 * the order is impossible
 */
export function fold(state: JournalState, record: JournalRecord, bytes: number, now: number): void {
  switch (record.record) {
    case 'begin':
      throw new JournalRecordError(record, 'a begin record is allowed only as the first record');
    case 'epoch':
      if (record.epoch < state.epoch) throw new JournalRecordError(record, `${record.epoch} is below ${state.epoch}`);
      state.epoch = record.epoch;
      return;
    case 'accepted': {
      const { id, attempt } = record.task;
      if (state.tasks.has(id)) throw new JournalRecordError(record, `${id} is known`);
      return put(state, { state: 'accepted', id, attempt, task: record.task, bytes });
    }
    case 'started': {
      const task = state.tasks.get(record.id);
      if (task?.state !== 'accepted')
        throw new JournalRecordError(record, `${record.id} is ${task?.state ?? 'unknown'}`);
      const { group, at: startedAt } = record;
      const more = { ...definedFields({ group, startedAt }) };
      return put(state, { ...task, state: 'running', bytes: task.bytes + bytes, starts: 1, ...more });
    }
    case 'restarted': {
      const task = state.tasks.get(record.id);
      if (task?.state !== 'running')
        throw new JournalRecordError(record, `${record.id} is ${task?.state ?? 'unknown'}`);
      return put(state, { ...task, bytes: task.bytes + bytes, starts: record.starts });
    }
    case 'processes': {
      const task = state.tasks.get(record.id);
      if (task?.state !== 'running')
        throw new JournalRecordError(record, `${record.id} is ${task?.state ?? 'unknown'}`);
      const { group: _, ...others } = task;
      return put(state, { ...others, bytes: task.bytes + bytes, ...definedFields({ group: record.group }) });
    }
    case 'ended': {
      const { id, attempt } = record.end;
      if (state.tasks.get(id)?.state === 'ended') throw new JournalRecordError(record, `${id} has ended`);
      return put(state, { state: 'ended', id, attempt, end: record.end, bytes });
    }
    case 'renumbered': {
      const task = state.tasks.get(record.id);
      if (task === undefined || task.attempt >= record.attempt)
        throw new JournalRecordError(record, `${record.id} is ${task ? `at ${task.attempt}` : 'unknown'}`);
      return put(state, renumbered(task, record.attempt));
    }
    case 'acknowledged':
      remove(state, record.id);
      state.acknowledged.delete(record.id);
      state.acknowledged.set(record.id, now);
      return;
    default:
      return record satisfies never;
  }
}

/** Forgets acknowledged ids that are too old or too many. */
export function prune(state: JournalState, now: number): void {
  for (const [id, at] of state.acknowledged) {
    if (now - at < ACKNOWLEDGED_KEPT_MS && state.acknowledged.size <= MAX_ACKNOWLEDGED) return;
    state.acknowledged.delete(id);
  }
}

/** The records of a compacted journal. */
export function* recordsOf(state: JournalState): Generator<JournalRecord> {
  yield { record: 'begin', version: 1, journalId: state.journalId, epoch: state.epoch };
  for (const id of state.acknowledged.keys()) yield { record: 'acknowledged', id };
  for (const task of state.tasks.values()) {
    if (task.state === 'ended') yield { record: 'ended', end: task.end };
    else yield { record: 'accepted', task: task.task };
    if (task.state !== 'running') continue;
    const { id, group, startedAt, starts } = task;
    yield { record: 'started', id, ...definedFields({ group, at: startedAt }) };
    if (starts > 1) yield { record: 'restarted', id, starts };
  }
}

/**
 * True when a file of `bytes`, of which `compactedBytes` were left by the last compaction, is
 * mostly history.
 */
export function needsCompaction(bytes: number, compactedBytes: number): boolean {
  return bytes >= COMPACT_FROM_BYTES + 2 * compactedBytes;
}

/** True while the journal takes another task. */
export function hasRoom(state: JournalState): boolean {
  return state.tasks.size < MAX_INVENTORY_TASKS && state.liveBytes < MAX_LIVE_BYTES;
}

/**
 * Limit for the bytes of an end. A full journal takes no more tasks, but its tasks must still end.
 */
export function maxEndBytes(state: JournalState): number {
  return state.liveBytes < MAX_LIVE_BYTES ? Number.POSITIVE_INFINITY : SHORT_END_BYTES;
}

/**
 * Only tasks that instances sent; they do not know posted tasks. `isHeld`: whether this process has
 * not continued it.
 */
export function buildInventory(
  state: JournalState,
  isHeld: (task: JournalTask) => boolean = () => false,
): InventoryFrame['tasks'] {
  const given = [...state.tasks.values()].filter(({ id }) => !isPostedId(id));
  return given.map((task) => {
    const { id, attempt, state: taskState } = task;
    return { id, attempt, state: taskState, ...(isHeld(task) ? { held: true } : {}) };
  });
}

function renumbered(known: JournalTask, attempt: number): JournalTask {
  if (known.state === 'ended') return { ...known, attempt, end: { ...known.end, attempt } };
  return { ...known, attempt, task: { ...known.task, attempt } };
}

function put(state: JournalState, task: JournalTask): void {
  state.liveBytes += task.bytes - (state.tasks.get(task.id)?.bytes ?? 0);
  state.tasks.set(task.id, task);
}

function remove(state: JournalState, id: string): void {
  state.liveBytes -= state.tasks.get(id)?.bytes ?? 0;
  state.tasks.delete(id);
}
