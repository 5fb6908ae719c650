/**
 * Takes what agents report about their tasks and has it stored: ends at once, the rest within a few milliseconds, all
 * that gathered in one statement. An end is acknowledged once it is recorded (or needs no record), and kept until then,
 * through an outage of the database as well. Bounded: output that is too much is dropped and counted, the agent's ends
 * beyond the bound are not taken and the agent repeats them. Called by the dispatcher.
 */
import { DatabaseUnavailableError, messageOf } from '../errors.ts';
import type { Logger } from '../log.ts';
import { type Queryable, sqlStateOf } from '../moray/database.ts';
import type { Clock } from '../ports/clock.ts';
import { Runner } from '../waits/runner.ts';
import type { TaskEndFrame, TaskEventFrame } from '../wire/frames.ts';
import type { ChangedTask } from './claim-store.ts';
import {
  addEvent,
  type EndReport,
  type EventReport,
  type Report,
  type ReportSubject,
  sizeOf,
  toEnd,
  toEvent,
  withoutResult,
} from './report.ts';
import { type AttemptReport, recordRepeatedReports, recordReports } from './report-store.ts';
import type { TaskSession } from './sessions.ts';
import type { TaskError } from './task.ts';

export interface RecorderDeps {
  database: Queryable;
  clock: Clock;
  log: Logger;
  /** Stored: tell whoever waits for them. */
  onChanged: (changed: readonly ChangedTask[]) => void;
  /** What agents of these servers said is stored. */
  onStored: (serverUuids: readonly string[]) => void;
}

/** What has gathered about one attempt. */
interface Gathered {
  subject: ReportSubject;
  events: EventReport[];
  /** So many of them have been sent before, and may be stored: the answer did not come. */
  sentEvents: number;
  /** Some of it has been sent before. */
  wasSent: boolean;
  end?: EndReport;
  /** Tells whoever reported the end that it is recorded. */
  acknowledge?: () => void;
  size: number;
  /** The database would not have it as it was; the end is left. */
  isBare?: boolean;
}

const GATHER_MS = 25;
const MAX_BATCH_SIZE = 4 * 1024 * 1024;
const MAX_BATCH_TASKS = 500;
/** Above this, events are dropped. */
const MAX_EVENTS_SIZE = 32 * 1024 * 1024;
/** Above this, ends are not taken. */
const MAX_ENDS_SIZE = 64 * 1024 * 1024;

export class Recorder {
  readonly #deps: RecorderDeps;
  readonly #runner: Runner;
  #gathered = new Map<string, Gathered>();
  #size = 0;
  /** Events that were not stored because too much was on its way. */
  droppedEvents = 0;
  /** Ends not taken for the same reason; their agents repeat them. */
  refusedEnds = 0;

  constructor(deps: RecorderDeps) {
    this.#deps = deps;
    this.#runner = new Runner({
      clock: deps.clock,
      log: deps.log,
      what: 'recording of task reports',
      hasWork: () => this.#gathered.size > 0,
      work: () => this.#store(this.#take()),
    });
  }

  /** Reports waiting or being stored. */
  get size(): number {
    return this.#size;
  }

  event(session: TaskSession, frame: TaskEventFrame): void {
    const report = toEvent(frame);
    const size = sizeOf(report);
    if (this.#size + size > MAX_EVENTS_SIZE) {
      this.droppedEvents += 1;
      return;
    }
    const gathered = this.#of({ id: frame.id, serverUuid: session.serverUuid, attempt: frame.attempt });
    addEvent(gathered.events, report, gathered.sentEvents);
    this.#grow(gathered, size);
    this.#runner.kick(GATHER_MS);
  }

  end(session: TaskSession, frame: TaskEndFrame): void {
    const { id, attempt } = frame;
    const acknowledge = () => session.send({ type: 'task_ack', id, attempt });
    this.#takeEnd({ id, serverUuid: session.serverUuid, attempt }, () => toEnd(frame), acknowledge);
  }

  /** An end that this instance heard itself. Until it is acknowledged it is to be told again. */
  endOfPost(subject: ReportSubject, end: EndReport, acknowledge: () => void): void {
    this.#takeEnd(subject, () => end, acknowledge);
  }

  /** An end that the control plane gives an attempt; nobody is told but who waits. */
  fail(subject: ReportSubject, error: TaskError): void {
    const gathered = this.#of(subject);
    if (gathered.end === undefined)
      this.#end(gathered, { name: 'failure', reportedAt: '', resultJson: undefined, error });
  }

  /** Stores what it can at once; what the database does not take now, the agents repeat to another instance. */
  async stop(): Promise<void> {
    await this.#runner.stop();
    try {
      while (this.#gathered.size > 0) await this.#store(this.#take());
    } catch (error) {
      this.#deps.log.warn(
        { reason: messageOf(error), count: this.#gathered.size },
        'task reports left to their agents',
      );
    }
  }

  #takeEnd(subject: ReportSubject, end: () => EndReport, acknowledge: () => void): void {
    if (this.#size > MAX_ENDS_SIZE) {
      this.refusedEnds += 1;
      return;
    }
    const gathered = this.#of(subject);
    gathered.acknowledge = acknowledge;
    if (gathered.end === undefined) this.#end(gathered, end());
  }

  #end(gathered: Gathered, report: EndReport): void {
    gathered.end = report;
    this.#grow(gathered, sizeOf(report));
    this.#runner.kick();
  }

  #of(subject: ReportSubject): Gathered {
    const key = keyOf(subject);
    let gathered = this.#gathered.get(key);
    if (gathered === undefined) {
      gathered = { subject, events: [], sentEvents: 0, wasSent: false, size: 0 };
      this.#gathered.set(key, gathered);
    }
    return gathered;
  }

  #grow(gathered: Gathered, size: number): void {
    gathered.size += size;
    this.#size += size;
  }

  #take(): Gathered[] {
    const batch: Gathered[] = [];
    let size = 0;
    for (const [key, gathered] of this.#gathered) {
      if (batch.length > 0 && (size + gathered.size > MAX_BATCH_SIZE || batch.length >= MAX_BATCH_TASKS)) break;
      this.#gathered.delete(key);
      batch.push(gathered);
      size += gathered.size;
    }
    return batch;
  }

  /** @throws DatabaseUnavailableError; the batch is gathered again then. */
  async #store(batch: Gathered[]): Promise<void> {
    try {
      const changed = await this.#record(batch);
      this.#finish(batch);
      this.#deps.onChanged(changed);
      this.#deps.onStored(batch.map(({ subject }) => subject.serverUuid));
    } catch (error) {
      if (error instanceof DatabaseUnavailableError) {
        this.#putBack(batch);
        throw error;
      }
      if (batch.length > 1) await this.#storeOneByOne(batch);
      else await this.#storeBare(batch, error);
    }
  }

  #record(batch: readonly Gathered[]): Promise<ChangedTask[]> {
    const { database } = this.#deps;
    const reports = batch.flatMap(reportsOf);
    return batch.some(({ wasSent }) => wasSent)
      ? recordRepeatedReports(database, reports)
      : recordReports(database, reports);
  }

  /** Of what the database will not have, the end at least: without it the task would never end. */
  async #storeBare(batch: Gathered[], error: unknown): Promise<void> {
    const [gathered] = batch;
    if (gathered?.end === undefined || gathered.isBare || !isUnfit(error)) return this.#giveUp(batch, error);
    gathered.isBare = true;
    gathered.events = [];
    gathered.sentEvents = 0;
    gathered.end = withoutResult(gathered.end, messageOf(error));
    await this.#store(batch);
  }

  async #storeOneByOne(batch: Gathered[]): Promise<void> {
    for (const [index, gathered] of batch.entries()) {
      try {
        await this.#store([gathered]);
      } catch (error) {
        this.#putBack(batch.slice(index + 1));
        throw error;
      }
    }
  }

  /** The database will not have it; without an acknowledgement its agent keeps it. */
  #giveUp(batch: Gathered[], error: unknown): void {
    for (const { subject, size } of batch) {
      this.#size -= size;
      this.#deps.log.error({ err: error, task: subject.id, attempt: subject.attempt }, 'task report not stored');
    }
  }

  #finish(batch: Gathered[]): void {
    for (const { end, acknowledge, size } of batch) {
      this.#size -= size;
      if (end !== undefined) acknowledge?.();
    }
  }

  /** In front of what has come for the same attempt since. */
  #putBack(batch: Gathered[]): void {
    const later = this.#gathered;
    for (const gathered of batch) {
      gathered.sentEvents = gathered.events.length;
      gathered.wasSent = true;
    }
    this.#gathered = new Map(batch.map((gathered) => [keyOf(gathered.subject), gathered]));
    for (const [key, gathered] of later) {
      const earlier = this.#gathered.get(key);
      if (earlier === undefined) this.#gathered.set(key, gathered);
      else this.#join(earlier, gathered);
    }
  }

  #join(earlier: Gathered, later: Gathered): void {
    earlier.events.push(...later.events);
    earlier.size += later.size;
    if (earlier.end === undefined && later.end !== undefined) earlier.end = later.end;
    if (later.acknowledge !== undefined) earlier.acknowledge = later.acknowledge;
  }
}

/** SQLSTATE classes of what lies in the values: data exceptions, and limits of the program. */
const isUnfit = (error: unknown): boolean => /^(22|54)/.test(sqlStateOf(error) ?? '');

const keyOf = (subject: ReportSubject): string => `${subject.serverUuid} ${subject.id} ${subject.attempt}`;

function reportsOf({ subject, events, sentEvents, end }: Gathered): (AttemptReport & { isRepeated: boolean })[] {
  const reports: Report[] = end === undefined ? events : [...events, end];
  return reports.map((report, at) => ({ subject, report, isRepeated: at < sentEvents }));
}
