/**
 * The live instances for the name server: runs that are `live` in the table, are not draining, and
 * whose beat moved within this observer's own last `leaseMs` of healthy reads. After a failed read
 * the last answer is kept. It never writes.
 */

import { readLive } from '../control/roster/membership/instance-store.ts';
import { type ObservedLeases, observeLeases } from '../control/roster/membership/lease.ts';
import type { ZoneInstance } from '../platform/dns/zone.ts';
import type { Logger } from '../platform/log.ts';
import type { Queryable } from '../platform/postgres/database.ts';
import type { Clock } from '../platform/time/clock.ts';
import { Loop } from '../platform/time/loop.ts';

interface LivingInstancesDeps {
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
  readonly #leases: ObservedLeases;
  readonly #loop: Loop;
  #instances: readonly ZoneInstance[] = [];
  #readAt = 0;

  constructor({ database, clock, log, readMs = 250, leaseMs = 5000 }: LivingInstancesDeps) {
    this.#database = database;
    this.#clock = clock;
    this.#log = log;
    this.#readMs = readMs;
    this.#leases = observeLeases(leaseMs);
    this.#loop = new Loop({
      clock,
      log,
      what: 'read of the live instances (the last answer is kept)',
      work: () => this.#round(),
      pauseMs: readMs,
    });
  }

  get instances(): readonly ZoneInstance[] {
    return this.#instances;
  }

  start(): void {
    this.#readAt = this.#clock.now();
    this.#loop.start();
  }

  stop(): Promise<void> {
    return this.#loop.stop();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  async #round(): Promise<void> {
    const elapsedMs = this.#clock.now() - this.#readAt;
    this.#readAt += elapsedMs;
    // A late tick proves nothing: this process itself stood still.
    if (elapsedMs < 2 * this.#readMs) this.#leases.countHealthyTick(elapsedMs);
    await this.#read();
  }

  async #read(): Promise<void> {
    try {
      const rows = await readLive(this.#database);
      const lapsed = new Set(this.#leases.read(rows).map(({ run }) => run));
      this.#publish(latestOfEach(rows.filter(({ run, isDraining }) => !lapsed.has(run) && !isDraining)));
    } catch (error) {
      this.#leases.readFailed();
      throw error;
    }
  }

  #publish(instances: readonly ZoneInstance[]): void {
    const before = this.#instances.map(({ uuid }) => uuid);
    const after = instances.map(({ uuid }) => uuid);
    this.#instances = instances;
    if (before.join() !== after.join()) this.#log.info({ before, after }, 'dns: living instances changed');
  }
}

/**
 * Keeps one entry per address, because an earlier run of a restarted instance may count as live for
 * some seconds. Rows are sorted by age.
 */
function latestOfEach(rows: readonly { cnapiUuid: string; host: string; port: number }[]): ZoneInstance[] {
  const byAddress = new Map(
    rows.map(({ cnapiUuid, host, port }) => [`${host} ${port}`, { uuid: cnapiUuid, host, port }]),
  );
  return [...byAddress.values()];
}
