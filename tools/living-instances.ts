/**
 * The live instances for the name server: runs that are `live` in the table, are not draining, and
 * whose beat moved within this observer's own last `leaseMs` of healthy reads. After a failed read
 * the last answer is kept. It never writes.
 */

import { readLive } from '../lib/control/roster/instance-store.ts';
import { LeaseObserver } from '../lib/control/roster/lease.ts';
import type { Clock } from '../lib/platform/clock.ts';
import type { Instance } from '../lib/platform/dns/zone.ts';
import type { Logger } from '../lib/platform/log.ts';
import type { Queryable } from '../lib/platform/postgres/database.ts';

export interface LivingInstancesDependencies {
  database: Queryable;
  clock: Clock;
  log: Logger;
  /**
   * Default of `readMs` 250 ms, so that a new instance is found soon; of `leaseMs` 5 s, as for the
   * instances.
   */
  readMs?: number;
  leaseMs?: number;
}

export class LivingInstances {
  readonly #database: Queryable;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #readMs: number;
  readonly #leases: LeaseObserver;
  readonly #stopping = new AbortController();
  #instances: readonly Instance[] = [];
  #reachable: boolean | undefined;
  #loop: Promise<void> | undefined;

  constructor({ database, clock, log, readMs = 250, leaseMs = 5000 }: LivingInstancesDependencies) {
    this.#database = database;
    this.#clock = clock;
    this.#log = log;
    this.#readMs = readMs;
    this.#leases = new LeaseObserver(leaseMs);
  }

  get instances(): readonly Instance[] {
    return this.#instances;
  }

  start(): void {
    this.#loop ??= this.#run();
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#loop;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  async #run(): Promise<void> {
    let readAt = this.#clock.now();
    while (!this.#stopping.signal.aborted) {
      const elapsedMs = this.#clock.now() - readAt;
      readAt += elapsedMs;
      // A late tick proves nothing: this process itself stood still.
      if (elapsedMs < 2 * this.#readMs) this.#leases.countHealthyTick(elapsedMs);
      await this.#read();
      await this.#clock.sleep(this.#readMs, this.#stopping.signal);
    }
  }

  async #read(): Promise<void> {
    try {
      const rows = await readLive(this.#database);
      const lapsed = new Set(this.#leases.readBeats(rows).map(({ run }) => run));
      this.#publish(latestOfEach(rows.filter(({ run, isDraining }) => !lapsed.has(run) && !isDraining)));
      this.#note(true);
    } catch (err) {
      this.#leases.readFailed();
      this.#note(false, err);
    }
  }

  #publish(instances: readonly Instance[]): void {
    const before = this.#instances.map(({ uuid }) => uuid);
    const after = instances.map(({ uuid }) => uuid);
    this.#instances = instances;
    if (before.join() !== after.join()) this.#log.info({ before, after }, 'living instances changed');
  }

  #note(reachable: boolean, err?: unknown): void {
    if (this.#reachable === reachable) return;
    this.#reachable = reachable;
    if (reachable) this.#log.info('reading the instances');
    else this.#log.warn({ err }, 'the instances cannot be read; keeping the last answer');
  }
}

/**
 * Keeps one entry per address, because an earlier run of a restarted instance may count as live for
 * some seconds. Rows are sorted by age.
 */
function latestOfEach(rows: readonly { cnapiUuid: string; host: string; port: number }[]): Instance[] {
  const byAddress = new Map(
    rows.map(({ cnapiUuid, host, port }) => [`${host} ${port}`, { uuid: cnapiUuid, host, port }]),
  );
  return [...byAddress.values()];
}
