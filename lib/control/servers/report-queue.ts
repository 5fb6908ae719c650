/**
 * Writes the agents' reports of VMs, memory and disk in batches. Each agent reports at least once a
 * minute, and ten thousand agents must not cost more statements than a hundred. The first report
 * after a quiet time is written at once. Reports that arrive within GAP_MS of a write are written
 * with the next one; several reports of one server are merged, newer figures over older ones.
 * Called by `servers.ts`.
 *
 * The size of the queue is bounded in bytes, and so is each statement. Beyond the bound, a report
 * is dropped and counted.
 *
 * A report whose server does not exist yet (its sysinfo is on its way), or that the database
 * refuses, is retried a few times. Then it is dropped; the next one arrives within a minute.
 */

import type { Clock } from '../../platform/clock.ts';
import { messageOf } from '../../platform/errors.ts';
import type { Logger } from '../../platform/log.ts';
import { BatchQueue } from '../../platform/postgres/batches/batch-queue.ts';
import type { Queryable } from '../../platform/postgres/database.ts';
import { mergeReports, type ServerReport } from './server.ts';
import { storeReports } from './server-store.ts';

interface ReportQueueDeps {
  database: Queryable;
  clock: Clock;
  log: Logger;
}

const GAP_MS = 4_000;
/** Rows of one statement: bounds its locks and its time. */
const MAX_BATCH = 500;
const MAX_BATCH_SIZE = 8 * 1024 * 1024;
/**
 * The limit of the whole queue while the database is unreachable or slow. A report has about 20 KB.
 */
const MAX_WAITING_SIZE = 64 * 1024 * 1024;
const MAX_TRIES = 3;

interface Waiting {
  serverUuid: string;
  report: ServerReport;
  /** The length of its text, in characters. */
  size: number;
  tries: number;
}

export class ReportQueue {
  readonly #deps: ReportQueueDeps;
  readonly #waiting: BatchQueue<Waiting>;
  #waitingSize = 0;
  #wroteAt = Number.NEGATIVE_INFINITY;
  /** Reports dropped because the queue was full. */
  dropped = 0;

  constructor(deps: ReportQueueDeps) {
    this.#deps = deps;
    this.#waiting = new BatchQueue<Waiting>({
      ...deps,
      what: 'reports of servers',
      keyOf: ({ serverUuid }) => serverUuid,
      join: (one, other) => this.#join(one, other),
      maxBatch: MAX_BATCH,
      maxBatchSize: MAX_BATCH_SIZE,
      sizeOf: ({ size }) => size,
      work: (batch, database) => this.#store(batch, database),
      refused: (waiting, error) => this.#again(waiting, messageOf(error)),
    });
  }

  /** If the new report does not fit, it is dropped, and the queued report of its server stays. */
  add(serverUuid: string, report: ServerReport, size: number): void {
    const last = this.#waiting.get(serverUuid)?.size ?? 0;
    if (this.#waitingSize + Math.max(size - last, 0) > MAX_WAITING_SIZE) this.dropped += 1;
    else this.#put({ serverUuid, report, size, tries: 0 });
  }

  /** Drops the queued reports. */
  async stop(): Promise<void> {
    await this.#waiting.stop();
  }

  #put(waiting: Waiting): void {
    this.#waitingSize += waiting.size;
    this.#waiting.add(waiting, Math.max(0, this.#wroteAt + GAP_MS - this.#deps.clock.now()));
  }

  async #store(batch: readonly Waiting[], database: Queryable): Promise<undefined> {
    this.#wroteAt = this.#deps.clock.now();
    const kept = await storeReports(
      database,
      batch.map(({ serverUuid, report }) => [serverUuid, report]),
    );
    const known = new Set(kept);
    for (const waiting of batch) {
      if (known.has(waiting.serverUuid)) {
        this.#waitingSize -= waiting.size;
        continue;
      }
      const again = this.#again(waiting, 'there is no such server');
      if (again === undefined) continue;
      this.#waitingSize -= again.size;
      this.#put(again);
    }
    return undefined;
  }

  /** Returns the report for another try; undefined when it was tried often enough. */
  #again(waiting: Waiting, reason: string): Waiting | undefined {
    const { serverUuid, size, tries } = waiting;
    if (tries + 1 < MAX_TRIES) return { ...waiting, tries: tries + 1 };
    this.#waitingSize -= size;
    this.#deps.log.debug({ server_uuid: serverUuid, reason }, 'server: its report is not kept');
    return undefined;
  }

  /**
   * The one that was tried more often is older. The merged report takes its largest parts from one
   * of the two, so the larger size counts.
   */
  #join(one: Waiting, other: Waiting): Waiting {
    const [older, newer] = other.tries > one.tries ? [other, one] : [one, other];
    const size = Math.max(older.size, newer.size);
    this.#waitingSize += size - older.size - newer.size;
    return { ...newer, report: mergeReports(older.report, newer.report), size };
  }
}
