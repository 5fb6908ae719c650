/**
 * The life of an instance: folds the ordered list of its subsystems (`subsystem.ts`) into one
 * start, one drain and one stop. Knows no noun.
 *
 *     new ──start()──▶ waiting for the database ──▶ prepared ──▶ starting ──▶ live
 *      └──────────────────────────┴────────────────────┴───────────┴──stop()───┴──▶ stopped
 *
 * - `start()` waits for an unreachable database. It fails on errors that waiting does not fix (a
 *   taken port, a refused password).
 * - `stop()` may be called at any time. A part that fails to stop, or not in time, does not keep
 *   the others running. The databases are stopped last.
 * - The roster decides when a drain begins and ends (`roster/relocation/drainer.ts`); the hooks for
 *   it are here.
 */
import { DatabaseBusyError, isTemporary, messageOf } from '../platform/errors.ts';
import type { Logger } from '../platform/log.ts';
import type { Database } from '../platform/postgres/database.ts';
import { type Migration, migrate } from '../platform/postgres/migrations.ts';
import { waitForDatabase } from '../platform/postgres/pool.ts';
import { type Clock, settlesWithin } from '../platform/time/clock.ts';
import type { DutyHandlers } from './duty/duty.ts';
import type { UpgradeRoute } from './http/listener/upgrades.ts';
import type { Route } from './http/route.ts';
import type { AgentListener } from './link/agent-listener.ts';
import type { Metric } from './metrics/metric.ts';
import type { RunListener } from './roster/run-listener.ts';
import type { Chore, Subsystem, SubsystemDefinition } from './subsystem.ts';

interface SubsystemHostDeps {
  /** The first one is migrated. */
  databases: readonly [Database, ...Database[]];
  migrations: readonly Migration[];
  clock: Clock;
  log: Logger;
}

/**
 * Time for a subsystem to stop. One that does not, because its database is frozen, is not waited
 * for any longer; its connections are closed last.
 */
const SUBSYSTEM_STOPS_WITHIN_MS = 2500;
const PREPARE_AGAIN_MS = 500;

export class SubsystemHost {
  readonly #deps: SubsystemHostDeps;
  readonly #subsystems: Subsystem[] = [];
  readonly #stopping = new AbortController();
  readonly #leaving = new AbortController();
  readonly #stopped = Promise.withResolvers<void>();
  #starting: Promise<void> | undefined;
  #isLive = false;

  constructor(deps: SubsystemHostDeps) {
    this.#deps = deps;
  }

  /**
   * Opens each subsystem with what it needs of the instance, and adds it. Only before `start()`.
   */
  open<Parts>(definitions: readonly SubsystemDefinition<Parts>[], parts: Parts): void {
    for (const { open } of definitions) if (open !== undefined) this.add(open(parts));
  }

  /** Adds subsystems, which start in the order in which they were added. Only before `start()`. */
  add(...subsystems: readonly Subsystem[]): void {
    this.#subsystems.push(...subsystems);
  }

  /** Whether the instance has started and nobody has stopped it. */
  get isLive(): boolean {
    return this.#isLive && !this.#stopping.signal.aborted;
  }

  /** Resolves when `stop()` has done its work. */
  get stopped(): Promise<void> {
    return this.#stopped.promise;
  }

  /** Aborts when this instance leaves and every open wait must be answered. */
  get instanceLeaving(): AbortSignal {
    return this.#leaving.signal;
  }

  get upgrades(): UpgradeRoute[] {
    return this.#subsystems.flatMap(({ upgrades = [] }) => upgrades);
  }

  get routes(): Route[] {
    return this.#subsystems.flatMap(({ routes = [] }) => routes);
  }

  get metrics(): Metric[] {
    return this.#subsystems.flatMap(({ metrics = [] }) => metrics);
  }

  get chores(): Chore[] {
    return this.#subsystems.flatMap(({ chores = [] }) => chores);
  }

  get runListeners(): RunListener[] {
    return this.#subsystems.flatMap(({ runs = [] }) => runs);
  }

  get agentListeners(): AgentListener[] {
    return this.#subsystems.flatMap(({ agents = [] }) => agents);
  }

  get dutyHandlers(): DutyHandlers {
    return Object.fromEntries(this.#subsystems.flatMap(({ dutyHandlers = {} }) => Object.entries(dutyHandlers)));
  }

  /** Resolves when the instance is live, or when it was stopped before. */
  start(): Promise<void> {
    this.#starting ??= this.#start();
    return this.#starting;
  }

  /** Work that a drain must not cut off. */
  unfinished(): number {
    return this.#subsystems.reduce((sum, subsystem) => sum + (subsystem.unfinished?.() ?? 0), 0);
  }

  /** The instance is about to leave. */
  beginDrain(): void {
    for (const subsystem of this.#subsystems) subsystem.beginDrain?.();
  }

  /** The agents have left, and the last callers may go. */
  endDrain(): void {
    for (const subsystem of this.#subsystems) subsystem.endDrain?.();
  }

  /** Answers all waits with their present state. */
  endWaits(): void {
    this.#leaving.abort();
  }

  async stop(): Promise<void> {
    if (this.#stopping.signal.aborted) return this.stopped;
    this.#stopping.abort();
    for (const subsystem of this.#subsystems) subsystem.beginStop?.();
    if (this.#starting !== undefined) await this.#quietly('start', this.#starting);
    for (const subsystem of this.#subsystems.toReversed())
      if (subsystem.disconnect !== undefined) await this.#quietly(subsystem.name, subsystem.disconnect());
    await Promise.all(this.#subsystems.map((subsystem) => this.#quietly(subsystem.name, subsystem.stop?.())));
    await this.#quietly('databases', Promise.all(this.#deps.databases.map((database) => database.stop())));
    this.#deps.log.info('instance: stopped');
    this.#stopped.resolve();
  }

  async #start(): Promise<void> {
    const { signal } = this.#stopping;
    try {
      await this.#prepare(signal);
      for (const subsystem of this.#subsystems) {
        if (signal.aborted) return;
        await subsystem.start?.(signal);
      }
      this.#isLive = !signal.aborted;
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  }

  /**
   * The database may become unreachable again meanwhile: finished steps stay, the rest is repeated.
   */
  async #prepare(signal: AbortSignal): Promise<void> {
    const { clock, databases, log, migrations } = this.#deps;
    const [database] = databases;
    for (;;) {
      await waitForDatabase({ database, clock, log, signal });
      try {
        await migrate(database, migrations, { log });
        for (const subsystem of this.#subsystems) await subsystem.prepare?.();
        return;
      } catch (error) {
        if (!isTemporary(error)) throw error;
        const isLocked = error instanceof DatabaseBusyError;
        const what = isLocked
          ? 'a table is in use that a migration changes'
          : 'the database went away while it was prepared';
        log.warn({ reason: messageOf(error.cause) }, `instance: ${what}`);
        await clock.sleep(PREPARE_AGAIN_MS, signal);
      }
    }
  }

  async #quietly(subsystem: string, work: Promise<unknown> | undefined): Promise<void> {
    const { clock, log } = this.#deps;
    try {
      if (work === undefined || (await settlesWithin(clock, SUBSYSTEM_STOPS_WITHIN_MS, work))) return;
      log.warn({ subsystem, after_ms: SUBSYSTEM_STOPS_WITHIN_MS }, 'instance: subsystem did not stop in time');
    } catch (error) {
      log.warn({ subsystem, reason: messageOf(error) }, 'instance: subsystem failed while stopping');
    }
  }
}
