/**
 * What agents report of their VMs, memory and disk, written together: each agent reports once a minute at least, and ten
 * thousand of them shall not cost more statements than a hundred. The first report after a quiet time is written at once,
 * those that come within GAP_MS of a write with the next one; of one server only the newest. Called by `servers.ts`.
 *
 * A report that could not be written, or whose server is not there yet (its sysinfo is on its way), is tried again a few
 * times; then it is let go, and the next one comes within the minute.
 */
import { messageOf } from '../errors.ts';
import type { Logger } from '../log.ts';
import type { Queryable } from '../moray/database.ts';
import type { Clock } from '../ports/clock.ts';
import type { ServerReport } from './server.ts';
import { storeReports } from './server-store.ts';

export interface ReportQueueDeps {
  database: Queryable;
  clock: Clock;
  log: Logger;
}

const GAP_MS = 4_000;
/** Of one statement: bounds its locks and its time. */
const MAX_BATCH = 500;
const MAX_TRIES = 3;

interface Waiting {
  report: ServerReport;
  tries: number;
}

export class ReportQueue {
  readonly #deps: ReportQueueDeps;
  readonly #stopping = new AbortController();
  /** By server; bounded by the sessions that there are. */
  #waiting = new Map<string, Waiting>();
  #writing: Promise<void> | undefined;
  #isFailing = false;

  constructor(deps: ReportQueueDeps) {
    this.#deps = deps;
  }

  add(serverUuid: string, report: ServerReport): void {
    if (this.#stopping.signal.aborted) return;
    this.#waiting.set(serverUuid, { report, tries: 0 });
    this.#writing ??= this.#write();
  }

  /** What waits is let go. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#writing;
  }

  async #write(): Promise<void> {
    while (this.#waiting.size > 0 && !this.#stopping.signal.aborted) {
      const taken = [...this.#waiting];
      this.#waiting = new Map();
      for (let at = 0; at < taken.length; at += MAX_BATCH) await this.#record(taken.slice(at, at + MAX_BATCH));
      await this.#deps.clock.sleep(GAP_MS, this.#stopping.signal);
    }
    // In the same turn as the look at what waits: a report that comes next starts a write of its own.
    this.#writing = undefined;
  }

  async #record(batch: readonly [string, Waiting][]): Promise<void> {
    const kept = new Set(await this.#store(batch.map(([serverUuid, { report }]) => [serverUuid, report])));
    for (const [serverUuid, { report, tries }] of batch) {
      const isDone = kept.has(serverUuid) || tries + 1 === MAX_TRIES || this.#waiting.has(serverUuid);
      if (!isDone) this.#waiting.set(serverUuid, { report, tries: tries + 1 });
    }
  }

  async #store(reports: readonly [string, ServerReport][]): Promise<string[]> {
    try {
      const kept = await storeReports(this.#deps.database, reports);
      this.#isFailing = false;
      return kept;
    } catch (error) {
      if (!this.#isFailing)
        this.#deps.log.warn({ reports: reports.length, reason: messageOf(error) }, 'servers: reports cannot be kept');
      this.#isFailing = true;
      return [];
    }
  }
}
