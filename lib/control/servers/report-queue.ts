/**
 * Writes the agents' reports of VMs, memory and disk in batches. Each agent reports at least once a
 * minute, and ten thousand agents must not cost more statements than a hundred. The first report
 * after a quiet time is written immediately. Reports that arrive within GAP_MS of a write are
 * written with the next one, unless VMs have changed: then within CHANGE_MS. Several reports of one
 * server are merged, newer figures over older ones. Called by `servers.ts`.
 *
 * A server whose VMs change all the time may change a limited number of them
 * (`vm-change-limiter.ts`). Beyond it, a report with changed VMs is held back as a whole, so that
 * `as_of` tells from when the stored VMs are. The next report has the newest state, and arrives
 * within a minute.
 *
 * The size of the queue is bounded in bytes, and so is each statement. Beyond the bound, a report
 * is dropped and counted.
 *
 * A report of a session that has been replaced changes nothing.
 *
 * A report whose server does not exist yet (its sysinfo is on its way), or that the database
 * refuses, is retried a few times. Then it is dropped; the next one arrives within a minute.
 */

import { messageOf } from '../../platform/errors.ts';
import { LogLimiter } from '../../platform/limiting/log-limiter.ts';
import type { Logger } from '../../platform/log.ts';
import { BatchQueue } from '../../platform/postgres/batches/batch-queue.ts';
import type { Queryable } from '../../platform/postgres/database.ts';
import type { Clock } from '../../platform/time/clock.ts';
import type { JsonObject } from '../../protocol/json/bounded-json.ts';
import { countMisnamedVms, mergeReports, parseReport, type ServerReport, TooManyVmsError } from './server.ts';
import { type ReportToStore, storeReports } from './server-store.ts';
import { VmChangeLimiter } from './vm-change-limiter.ts';

interface ReportQueueDeps {
  database: Queryable;
  clock: Clock;
  log: Logger;
}

const GAP_MS = 4_000;
/** The time in which changes of VMs gather. They are to be seen everywhere within 500 ms. */
const CHANGE_MS = 50;
/** Rows of one statement: bounds its locks and its time. */
const MAX_BATCH = 500;
const MAX_BATCH_SIZE = 8 * 1024 * 1024;
/**
 * The limit of the whole queue while the database is unreachable or slow. A report has about 20 KB.
 */
const MAX_WAITING_SIZE = 64 * 1024 * 1024;
const MAX_TRIES = 3;

interface Waiting extends ReportToStore {
  /** The length of its text, in characters. */
  size: number;
  tries: number;
}

export class ReportQueue {
  readonly #deps: ReportQueueDeps;
  readonly #waiting: BatchQueue<Waiting>;
  readonly #changeLimiter: VmChangeLimiter;
  readonly #refusals: LogLimiter;
  #waitingSize = 0;
  #wroteAt = Number.NEGATIVE_INFINITY;
  /** Reports dropped because the queue was full. */
  dropped = 0;
  /**
   * Reports refused because they have too many VMs, and reports of which VMs without a uuid were
   * left out.
   */
  refused = 0;
  /** Reports held back because the VMs of their server had changed too often. */
  delayed = 0;

  constructor(deps: ReportQueueDeps) {
    this.#deps = deps;
    this.#changeLimiter = new VmChangeLimiter(deps.clock);
    this.#refusals = new LogLimiter(deps);
    this.#waiting = new BatchQueue<Waiting>({
      ...deps,
      what: 'reports of servers',
      keyOf: ({ serverUuid }) => serverUuid,
      join: (earlier, other) => this.#join(earlier, other),
      maxBatch: MAX_BATCH,
      maxBatchSize: MAX_BATCH_SIZE,
      sizeOf: ({ size }) => size,
      work: (batch, database) => this.#store(batch, database),
      onRefused: (waiting, error) => this.#again(waiting, messageOf(error)),
    });
  }

  /** Parses a report of an agent and adds it. A report with too many VMs is refused and counted. */
  addStatus(
    { serverUuid, epoch }: Pick<ReportToStore, 'serverUuid' | 'epoch'>,
    status: JsonObject,
    size: number,
  ): void {
    try {
      this.add({ serverUuid, epoch, report: this.parse(serverUuid, status) }, size);
    } catch (error) {
      if (!(error instanceof TooManyVmsError)) throw error;
    }
  }

  /** Counts what it refuses. @throws TooManyVmsError */
  parse(serverUuid: string, status: JsonObject): ServerReport {
    try {
      const report = parseReport(serverUuid, status);
      const vms = countMisnamedVms(status);
      if (vms === 0) return report;
      this.refused += 1;
      this.#refusals.warn({ server_uuid: serverUuid, vms }, 'server: VMs without a uuid in its report are left out');
      return report;
    } catch (error) {
      this.refused += 1;
      this.#refusals.warn({ server_uuid: serverUuid, err: error }, 'server: its report is refused');
      throw error;
    }
  }

  /** If the new report does not fit, it is dropped, and the queued report of its server stays. */
  add({ serverUuid, epoch, report }: ReportToStore, size: number): void {
    const last = this.#waiting.get(serverUuid)?.size ?? 0;
    if (this.#waitingSize + Math.max(size - last, 0) > MAX_WAITING_SIZE) {
      this.dropped += 1;
      return;
    }
    const admission = this.admit(serverUuid, report);
    if (admission !== 'held') this.#put({ serverUuid, epoch, report, size, tries: 0 }, admission === 'changed');
  }

  /** Counts the VMs that have changed. Only a report that is not `held` may be stored. */
  admit(serverUuid: string, { vms }: ServerReport): ReturnType<VmChangeLimiter['admit']> {
    const admission = this.#changeLimiter.admit(serverUuid, vms);
    if (admission === 'held') this.delayed += 1;
    return admission;
  }

  /** Drops the queued reports. */
  async stop(): Promise<void> {
    await this.#waiting.stop();
  }

  #put(waiting: Waiting, isUrgent: boolean): void {
    this.#waitingSize += waiting.size;
    const pauseMs = Math.max(0, this.#wroteAt + GAP_MS - this.#deps.clock.now());
    this.#waiting.add(waiting, isUrgent ? Math.min(CHANGE_MS, pauseMs) : pauseMs);
  }

  /** Returns those whose rows are locked. */
  async #store(batch: readonly Waiting[], database: Queryable): Promise<Waiting[]> {
    this.#wroteAt = this.#deps.clock.now();
    const outcomes = await storeReports(database, batch);
    for (const waiting of batch) {
      const outcome = outcomes.get(waiting.serverUuid);
      if (outcome === 'locked') continue;
      if (outcome !== undefined) {
        this.#waitingSize -= waiting.size;
        continue;
      }
      const again = this.#again(waiting, 'there is no such server');
      if (again === undefined) continue;
      this.#waitingSize -= again.size;
      this.#put(again, false);
    }
    return batch.filter(({ serverUuid }) => outcomes.get(serverUuid) === 'locked');
  }

  /** Returns the report for another try; undefined when it was tried often enough. */
  #again(waiting: Waiting, reason: string): Waiting | undefined {
    const { serverUuid, size, tries } = waiting;
    if (tries + 1 < MAX_TRIES) return { ...waiting, tries: tries + 1 };
    this.#waitingSize -= size;
    this.#deps.log.debug({ server_uuid: serverUuid, reason }, 'server: report dropped');
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
