/**
 * Takes what agents report about their tasks and has it stored: ends at once, the rest within a few milliseconds, all
 * that gathered in one statement. An end is acknowledged once it is recorded (or needs no record), and kept until then,
 * through an outage of the database as well. Bounded: output that is too much is dropped and counted, the agent's ends
 * beyond the bound are not taken and the agent repeats them. Called by the dispatcher.
 */
import { DatabaseUnavailableError, messageOf } from '../errors.ts';
import type { Logger } from '../log.ts';
import type { Queryable } from '../moray/database.ts';
import type { Clock } from '../ports/clock.ts';
import type { TaskEndFrame, TaskEventFrame } from '../wire/frames.ts';
import { MAX_OUTPUT_CHUNK } from '../wire/limits.ts';
import type { ChangedTask } from './claim-store.ts';
import { type Report, type ReportSubject, recordReports } from './report-store.ts';
import { Runner } from './runner.ts';
import type { TaskSession } from './sessions.ts';
import type { TaskError } from './task.ts';

export interface RecorderDeps {
  database: Queryable;
  clock: Clock;
  log: Logger;
  /** Stored: tell whoever waits for them. */
  onChanged: (changed: readonly ChangedTask[]) => void;
}

/** What has gathered about one attempt. */
interface Gathered {
  subject: ReportSubject;
  events: Report[];
  end?: Report;
  /** To acknowledge the end on. */
  session?: TaskSession;
  size: number;
}

const GATHER_MS = 25;
const MAX_BATCH_SIZE = 4 * 1024 * 1024;
const MAX_BATCH_TASKS = 500;
/** Above this, events are dropped; above twice this, ends are not taken. */
const MAX_SIZE = 32 * 1024 * 1024;
/** What a report weighs beside its texts. */
const REPORT_SIZE = 500;

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
    const report = toReport(frame);
    const size = sizeOf(report);
    if (this.#size + size > MAX_SIZE) {
      this.droppedEvents += 1;
      return;
    }
    const gathered = this.#of({ id: frame.id, serverUuid: session.serverUuid, attempt: frame.attempt });
    if (!mergeEvent(gathered.events, report)) gathered.events.push(report);
    this.#grow(gathered, size);
    this.#runner.kick(GATHER_MS);
  }

  end(session: TaskSession, frame: TaskEndFrame): void {
    const report = toEnd(frame);
    const gathered = this.#end({ id: frame.id, serverUuid: session.serverUuid, attempt: frame.attempt }, report);
    if (gathered !== undefined) gathered.session = session;
  }

  /** An end that the control plane gives an attempt; nobody is told but who waits. */
  fail(subject: ReportSubject, error: TaskError): void {
    this.#end(subject, { name: 'failure', reportedAt: '', result: undefined, error });
  }

  /** Stores what it can at once; what the database does not take now, the agents repeat to another instance. */
  async stop(): Promise<void> {
    await this.#runner.stop();
    try {
      while (this.#gathered.size > 0) await this.#store(this.#take());
    } catch (error) {
      this.#deps.log.warn(
        { reason: messageOf(error), tasks: this.#gathered.size },
        'task reports left to their agents',
      );
    }
  }

  #end(subject: ReportSubject, report: Report): Gathered | undefined {
    const size = sizeOf(report);
    if (this.#size + size > 2 * MAX_SIZE) {
      this.refusedEnds += 1;
      return undefined;
    }
    const gathered = this.#of(subject);
    if (gathered.end === undefined) this.#grow(gathered, size);
    gathered.end ??= report;
    this.#runner.kick();
    return gathered;
  }

  #of(subject: ReportSubject): Gathered {
    const key = keyOf(subject);
    let gathered = this.#gathered.get(key);
    if (gathered === undefined) {
      gathered = { subject, events: [], size: 0 };
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
      const changed = await recordReports(this.#deps.database, batch.flatMap(reportsOf));
      this.#finish(batch);
      this.#deps.onChanged(changed);
    } catch (error) {
      if (error instanceof DatabaseUnavailableError) {
        this.#putBack(batch);
        throw error;
      }
      if (batch.length > 1) await this.#storeOneByOne(batch);
      else this.#giveUp(batch, error);
    }
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
      this.#deps.log.error({ err: error, taskId: subject.id, attempt: subject.attempt }, 'task report not stored');
    }
  }

  #finish(batch: Gathered[]): void {
    for (const { subject, end, session, size } of batch) {
      this.#size -= size;
      if (end !== undefined) session?.send({ type: 'task_ack', id: subject.id, attempt: subject.attempt });
    }
  }

  /** In front of what has come for the same attempt since. */
  #putBack(batch: Gathered[]): void {
    const later = this.#gathered;
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
    if (later.session !== undefined) earlier.session = later.session;
  }
}

const keyOf = (subject: ReportSubject): string => `${subject.serverUuid} ${subject.id} ${subject.attempt}`;

function reportsOf({ subject, events, end }: Gathered): { subject: ReportSubject; report: Report }[] {
  return [...events, ...(end === undefined ? [] : [end])].map((report) => ({ subject, report }));
}

function toReport({ event }: TaskEventFrame): Report {
  switch (event.name) {
    case 'accepted':
    case 'started':
      return { name: event.name, reportedAt: event.reportedAt };
    case 'progress':
      return { name: 'progress', reportedAt: event.reportedAt, value: event.value, message: event.message };
    case 'output':
      return { ...event, bytes: Buffer.byteLength(event.text) };
    default:
      return event satisfies never;
  }
}

function toEnd(frame: TaskEndFrame): Report {
  const { reportedAt, result } = frame;
  if (frame.outcome === 'complete') return { name: 'complete', reportedAt, result };
  return { name: 'failure', reportedAt, result, error: frame.error ?? { code: 'Failed', message: 'no error given' } };
}

/** Of progress only the newest counts; output that follows on goes into one piece. */
function mergeEvent(events: Report[], report: Report): boolean {
  const last = events.at(-1);
  if (report.name === 'progress' && last?.name === 'progress') {
    events[events.length - 1] = report;
    return true;
  }
  if (report.name !== 'output' || last?.name !== 'output' || last.stream !== report.stream) return false;
  const followsOn = last.offset + last.bytes === report.offset;
  if (!followsOn || last.text.length + report.text.length > MAX_OUTPUT_CHUNK) return false;
  events[events.length - 1] = { ...last, text: last.text + report.text, bytes: last.bytes + report.bytes };
  return true;
}

function sizeOf(report: Report): number {
  switch (report.name) {
    case 'output':
      return REPORT_SIZE + report.bytes;
    case 'complete':
    case 'failure':
      return REPORT_SIZE + (report.result === undefined ? 0 : JSON.stringify(report.result).length);
    default:
      return REPORT_SIZE;
  }
}
