/**
 * Stores what agents report about their tasks: ends immediately, the rest within a few
 * milliseconds, all gathered reports in one statement. An end is acknowledged once it is recorded
 * (or needs no record). Until then the recorder keeps it, through a database outage as well.
 * Bounded: excess output is dropped and counted; agents' ends beyond the limit are refused, and the
 * agents repeat them. Called by `Tasks`.
 */

import { messageOf } from '../../../platform/errors.ts';
import type { Logger } from '../../../platform/log.ts';
import { BatchQueue } from '../../../platform/postgres/batches/batch-queue.ts';
import { type Queryable, sqlStateOf } from '../../../platform/postgres/database.ts';
import type { Clock } from '../../../platform/time/clock.ts';
import type { TaskEndFrame, TaskEventFrame } from '../../../protocol/link/frames.ts';
import type { TaskSession } from '../sessions.ts';
import type { ChangedTask } from '../store/change-result.ts';
import type { TaskError } from '../store/task.ts';
import {
  type EndReport,
  type EventReport,
  type Report,
  type ReportSubject,
  sizeOf,
  toEnd,
  toEvent,
  withoutResult,
} from './report.ts';
import { type AttemptReport, recordReports } from './report-store.ts';

interface RecorderDeps {
  database: Queryable;
  clock: Clock;
  log: Logger;
  /** Wakes those who wait for these tasks, which are stored. */
  onChanged: (changed: readonly ChangedTask[]) => void;
  /** The reports of these servers' agents are stored. */
  onStored: (serverUuids: readonly string[]) => void;
}

/** Gathered reports about one attempt. */
interface Gathered {
  subject: ReportSubject;
  events: EventReport[];
  /**
   * Whether some of them may be stored already, because the answer to their statement did not come.
   */
  isRepeated?: boolean;
  end?: EndReport | undefined;
  /** Informs the sender of the end that it is recorded. */
  acknowledge?: (() => void) | undefined;
  size: number;
  /** The database refused it in its original form; only the end is left. */
  isEndOnly?: boolean;
}

const GATHER_MS = 25;
const MAX_BATCH_SIZE = 4 * 1024 * 1024;
const MAX_BATCH_TASKS = 500;
/** Above this, output and progress are dropped. */
const MAX_EVENTS_SIZE = 32 * 1024 * 1024;
/**
 * Limit for one attempt. More would not fit into a statement, and would take the room of other
 * tasks while the attempt's row is locked.
 */
const MAX_ATTEMPT_SIZE = 2 * 1024 * 1024;
/** Above this, ends are refused. */
const MAX_ENDS_SIZE = 64 * 1024 * 1024;

export class Recorder {
  readonly #deps: RecorderDeps;
  readonly #reports: BatchQueue<Gathered>;
  #size = 0;
  /** Events that were not stored because too many bytes were waiting. */
  droppedEvents = 0;
  /** Ends that the database refused for the same reason. Their agents send them again. */
  refusedEnds = 0;

  constructor(deps: RecorderDeps) {
    this.#deps = deps;
    this.#reports = new BatchQueue<Gathered>({
      ...deps,
      what: 'recording of task reports',
      keyOf: ({ subject }) => keyOf(subject),
      join: (earlier, later) => this.#join(earlier, later),
      maxBatch: MAX_BATCH_TASKS,
      maxBatchSize: MAX_BATCH_SIZE,
      sizeOf: ({ size }) => size,
      work: (batch, database) => this.#store(batch, database),
      onLost: (batch) => markRepeated(batch),
      onRefused: (gathered, error) => this.#dropRefused(gathered, error),
    });
  }

  /** Reports that wait or are being stored. */
  get size(): number {
    return this.#size;
  }

  event(session: TaskSession, frame: TaskEventFrame): void {
    const report = toEvent(frame);
    const subject = { id: frame.id, serverUuid: session.serverUuid, attempt: frame.attempt };
    if (this.#hasRoomFor(subject, report)) this.#add({ subject, events: [report] }, sizeOf(report), GATHER_MS);
    else this.droppedEvents += 1;
  }

  end(session: TaskSession, frame: TaskEndFrame): void {
    const { id, attempt } = frame;
    const acknowledge = () => session.send({ type: 'task_ack', id, attempt });
    this.#takeEnd({ id, serverUuid: session.serverUuid, attempt }, () => toEnd(frame), acknowledge);
  }

  /**
   * The end of a post, which this instance received itself. The caller repeats it until it is
   * acknowledged.
   */
  endOfPost(subject: ReportSubject, end: EndReport, acknowledge: () => void): void {
    this.#takeEnd(subject, () => end, acknowledge);
  }

  /** An end that the control plane gives an attempt. It wakes waiters; no agent is informed. */
  fail(subject: ReportSubject, error: TaskError): void {
    const end: EndReport = { name: 'failure', reportedAt: '', resultJson: undefined, error };
    this.#add({ subject, end }, sizeOf(end));
  }

  /**
   * Stores each report that the database takes now, without a second try. Agents send the others
   * again, to another instance.
   */
  async stop(): Promise<void> {
    const left = await this.#reports.finish();
    if (left.length > 0) this.#deps.log.warn({ count: left.length }, 'task: reports left to their agents');
  }

  /** Reports of a task's state are small and others need them, so they may use the room of ends. */
  #hasRoomFor(subject: ReportSubject, report: EventReport): boolean {
    const size = sizeOf(report);
    if (report.name === 'accepted' || report.name === 'started') return this.#size + size <= MAX_ENDS_SIZE;
    const ofAttempt = this.#reports.get(keyOf(subject))?.size ?? 0;
    return this.#size + size <= MAX_EVENTS_SIZE && ofAttempt + size <= MAX_ATTEMPT_SIZE;
  }

  #takeEnd(subject: ReportSubject, toEnd: () => EndReport, acknowledge: () => void): void {
    if (this.#size > MAX_ENDS_SIZE) {
      this.refusedEnds += 1;
      return;
    }
    const end = toEnd();
    this.#add({ subject, end, acknowledge }, sizeOf(end));
  }

  #add(
    gathered: Pick<Gathered, 'subject' | 'end' | 'acknowledge'> & { events?: EventReport[] },
    size: number,
    withinMs = 0,
  ) {
    this.#size += size;
    this.#reports.add({ events: [], size, ...gathered }, withinMs);
  }

  /** Returns the items whose tasks' rows are locked. */
  async #store(batch: Gathered[], database: Queryable): Promise<Gathered[]> {
    const { changed, locked } = await recordReports(database, batch.flatMap(reportsOf));
    const inUse = new Set(locked);
    const { left = [], stored = [] } = Object.groupBy(batch, ({ subject }) =>
      inUse.has(subject.id) ? 'left' : 'stored',
    );
    for (const { end, acknowledge, size } of stored) {
      this.#size -= size;
      if (end !== undefined) acknowledge?.();
    }
    this.#deps.onChanged(changed);
    this.#deps.onStored(stored.map(({ subject }) => subject.serverUuid));
    return left;
  }

  /**
   * If the database refuses the reports, keeps at least the end: without it the task would never
   * end.
   */
  #dropRefused(gathered: Gathered, error: unknown): Gathered | undefined {
    const { subject, end, isEndOnly, size } = gathered;
    if (end !== undefined && isEndOnly !== true && isUnfit(error))
      return { ...gathered, isEndOnly: true, events: [], end: withoutResult(end, messageOf(error)) };
    // The agent gets no acknowledgement, so it keeps the end.
    this.#size -= size;
    this.#deps.log.error({ err: error, task: subject.id, attempt: subject.attempt }, 'task: a report was not stored');
    return undefined;
  }

  /** Later reports of an attempt go behind the waiting ones; its first end stands. */
  #join(earlier: Gathered, later: Gathered): Gathered {
    earlier.events.push(...later.events);
    earlier.size += later.size;
    if (earlier.end === undefined) earlier.end = later.end;
    else if (later.end !== undefined) this.#forget(earlier, sizeOf(later.end));
    if (later.acknowledge !== undefined) earlier.acknowledge = later.acknowledge;
    return earlier;
  }

  #forget(gathered: Gathered, size: number): void {
    gathered.size -= size;
    this.#size -= size;
  }
}

/** The answer was lost, so these may be stored already. */
function markRepeated(batch: readonly Gathered[]): false {
  for (const gathered of batch) gathered.isRepeated = true;
  return false;
}

/** SQLSTATE classes of errors caused by the values: data exceptions, and program limits. */
const isUnfit = (error: unknown): boolean => /^(22|54)/.test(sqlStateOf(error) ?? '');

const keyOf = (subject: ReportSubject): string => `${subject.serverUuid} ${subject.id} ${subject.attempt}`;

function reportsOf({ subject, events, end, isRepeated }: Gathered): AttemptReport[] {
  const reports: Report[] = end === undefined ? events : [...events, end];
  return reports.map((report) => ({ subject, report, isRepeated: isRepeated === true }));
}
