/**
 * An instance without its edges to the machine: roster, tasks, waitlist, events, servers, the agent
 * link and legacy agents, over given databases, a given bus and a given listener (`Ingress`).
 * `app.ts` passes real ones. The simulation passes its own and runs these drivers unchanged on a
 * virtual clock.
 *
 *     new ──start()──▶ waiting for the database ──▶ migrated ──▶ listening ──▶ live
 *                                                         live ──drain()──▶ draining ──▶ stopped
 *                                                         live ──stop()──▶ stopped
 *
 * - `start()` waits for an unreachable database. It fails on errors that waiting does not fix (a
 *   taken port, a refused password).
 * - `drain()` lets the agents leave first and then the callers. It stops at once when there is no
 *   other instance to go to.
 * - `stop()` may be called at any time. It sends agents to other instances, changes no status, and
 *   marks the run dead.
 */

import type { Bus } from '../platform/bus/bus.ts';
import { type Clock, settlesWithin } from '../platform/clock.ts';
import { DatabaseBusyError, isTemporary, messageOf } from '../platform/errors.ts';
import type { EventLoop } from '../platform/event-loop.ts';
import type { Logger } from '../platform/log.ts';
import { morayMigrations } from '../platform/moray/moray-schema.ts';
import type { Database } from '../platform/postgres/database.ts';
import { type Migration, migrate } from '../platform/postgres/migrations.ts';
import { waitForDatabase } from '../platform/postgres/pool.ts';
import { writeCheckMigrations } from '../platform/postgres/write-health.ts';
import type { Random } from '../platform/random.ts';
import { VERSION } from '../platform/version.ts';
import { tokenMigrations } from './access/token-schema.ts';
import { auditMigrations } from './audit/audit-schema.ts';
import { agentNetworksOf, type Config } from './config.ts';
import { type DutyHandler, DutyKeeper } from './duty/duty-keeper.ts';
import { dutyMigrations } from './duty/duty-schema.ts';
import { eventMigrations } from './events/event-schema.ts';
import { Events } from './events/events.ts';
import { housekeepingMigrations } from './housekeeping/housekeeping.ts';
import { AgentSources } from './legacy/agent-sources.ts';
import { HeartbeatMonitor } from './legacy/heartbeat-monitor.ts';
import { LegacyAgentApi } from './legacy/legacy-agent-api.ts';
import { LegacyDispatch } from './legacy/legacy-dispatch.ts';
import { legacyMigrations } from './legacy/legacy-schema.ts';
import { InventoriedSessions } from './link/inventoried-sessions.ts';
import { LinkServer } from './link/link-server.ts';
import { Roster } from './roster/coordinator.ts';
import { rosterMigrations } from './roster/roster-schema.ts';
import { serverMigrations } from './servers/server-schema.ts';
import { Servers } from './servers/servers.ts';
import { taskMigrations } from './tasks/task-schema.ts';
import { Tasks } from './tasks/tasks.ts';
import { Waitlist } from './waitlist/waitlist.ts';
import { waitlistMigrations } from './waitlist/waitlist-schema.ts';

/** Steps are applied in this order of subsystems: those that come later build on earlier ones. */
export const migrations: readonly Migration[] = [
  ...morayMigrations,
  ...rosterMigrations,
  ...legacyMigrations,
  ...serverMigrations,
  ...taskMigrations,
  ...waitlistMigrations,
  ...dutyMigrations,
  ...tokenMigrations,
  ...auditMigrations,
  ...eventMigrations,
  ...housekeepingMigrations,
  ...writeCheckMigrations,
];

/** The core stops them last. */
interface CoreDatabases {
  /**
   * Used for everything except the other four, of which all but `arrivals` have one connection and
   * short timeouts.
   */
  main: Database;
  /** For the statements that admit agents. */
  arrivals: Database;
  beats: Database;
  sessionLosses: Database;
  sightings: Database;
}

/** The listener for callers and agents. */
export interface Ingress {
  /** Its URL; known once it has started. */
  readonly url: string;
  /** Requests without an answer, including waits and streams. */
  readonly unanswered: number;
  start(): Promise<void>;
  /** The instance is about to leave: each answer closes its connection. */
  announceLeave(): void;
  /** Stops taking new connections. */
  stopAccepting(): void;
  stop(): Promise<void>;
}

/** Runs while the instance is live; stops before the databases. */
export interface BackgroundService {
  start?(): void;
  stop(): Promise<void>;
}

export interface CoreDeps {
  config: Config & { cnapiUuid: string };
  log: Logger;
  clock: Clock;
  eventLoop: EventLoop;
  random: Random;
  databases: CoreDatabases;
  bus: Bus;
  /** Called from `start()` on. */
  ingress: () => Ingress;
  /** What carries out the duties of each kind. */
  dutyHandlers?: Readonly<Record<string, DutyHandler>>;
  /** By name. */
  backgroundServices?: () => Readonly<Record<string, BackgroundService>>;
}

/**
 * A part that does not stop in time, because its database is frozen, is left behind; its
 * connections are closed last.
 */
const PART_STOPS_WITHIN_MS = 2500;
const PREPARE_AGAIN_MS = 500;
const DEFAULT_PORTS: Readonly<Record<string, number>> = { 'http:': 80, 'https:': 443 };

export class Core {
  readonly roster: Roster;
  readonly registry: InventoriedSessions;
  readonly tasks: Tasks;
  readonly duties: DutyKeeper;
  readonly waitlist: Waitlist;
  readonly events: Events;
  readonly servers: Servers;
  readonly observer: HeartbeatMonitor;
  readonly agentSources: AgentSources;
  readonly legacyAgentApi: LegacyAgentApi;
  readonly link: LinkServer;
  readonly #deps: CoreDeps;
  readonly #stopping = new AbortController();
  readonly #waitsOver = new AbortController();
  readonly #stopped = Promise.withResolvers<void>();
  #starting: Promise<void> | undefined;
  #isLive = false;

  constructor(deps: CoreDeps) {
    const { config, log, clock, random, bus, databases } = deps;
    const { cnapiUuid } = config;
    const database = databases.main;
    this.#deps = deps;
    const ports = { clock, random, log };
    const common = { ...ports, database, bus, config };
    this.roster = new Roster({
      ...common,
      cnapiUuid,
      eventLoop: deps.eventLoop,
      beatDatabase: databases.beats,
      sessionLossDatabase: databases.sessionLosses,
      arrivalDatabase: databases.arrivals,
      identity: () => this.#identity(),
      ingress: {
        unanswered: () => deps.ingress().unanswered + this.tasks.stats().postsInFlight,
        announce: () => {
          deps.ingress().announceLeave();
          this.tasks.retire();
          this.duties.retire();
        },
        close: () => {
          deps.ingress().stopAccepting();
          this.duties.handOver();
          // Event streams never end on their own and would delay the stop until the drain's time
          // limit.
          this.events.retire();
        },
        endWaits: () => this.#waitsOver.abort(),
        leave: () => void this.stop(),
      },
    });
    this.registry = new InventoriedSessions({ sessions: this.roster.sessions, run: () => this.roster.instances.run });
    this.waitlist = new Waitlist(common);
    this.events = new Events(common);
    this.servers = new Servers({
      database,
      arrivalDatabase: databases.arrivals,
      clock,
      log,
      datacenter: config.datacenter,
    });
    this.observer = new HeartbeatMonitor({
      database: databases.sightings,
      cnapiUuid,
      times: config,
      healthyTimer: this.roster.healthyTimer,
      canJudgeForeignRows: () => this.roster.instances.canJudgeForeignRows,
      clock,
      log,
    });
    this.legacyAgentApi = new LegacyAgentApi({
      database,
      servers: this.servers,
      clock,
      version: VERSION,
      networks: agentNetworksOf(config),
      // With tokens a proxy may stand before it on this machine: then everybody's requests come from loopback.
      allowLoopback: config.access === 'open',
      log,
    });
    this.agentSources = new AgentSources({ database, clock, log });
    this.tasks = new Tasks({
      ...common,
      sessions: this.registry,
      withoutSession: (outcomes) =>
        new LegacyDispatch({
          ...common,
          ...outcomes,
          agents: this.legacyAgentApi,
          run: () => this.roster.instances.run,
        }),
    });
    this.duties = new DutyKeeper({
      ...common,
      run: () => this.roster.instances.run,
      isHealthy: () => this.roster.instances.trouble === undefined,
      handlers: deps.dutyHandlers ?? {},
    });
    this.link = new LinkServer({
      ...common,
      cnapiUuid,
      roster: this.roster,
      registry: this.registry,
      tasks: this.tasks,
      servers: this.servers,
    });
    this.roster.onRunMessage(
      (message) => message.kind === 'tasks' && this.tasks.hint(message.server_uuid),
      () => this.tasks.pollSoon(),
    );
    this.roster.instances.listen({
      runRenewed: () => {
        // The new run must take over the posts of the old run before others count them as lost.
        this.tasks.pollSoon();
        this.duties.runRenewed();
      },
      runsEnded: () => this.duties.pollSoon(),
    });
  }

  /** Resolves when `stop()` has done its work. */
  get stopped(): Promise<void> {
    return this.#stopped.promise;
  }

  /** Aborts when this instance leaves and every open wait must be answered. */
  get waitsOver(): AbortSignal {
    return this.#waitsOver.signal;
  }

  /** Resolves when the instance is live, or when it was stopped before. */
  start(): Promise<void> {
    this.#starting ??= this.#start();
    return this.#starting;
  }

  /**
   * Drains, then stops; an instance that is not live yet stops at once. Repeating it is harmless.
   */
  drain(why: string): void {
    if (this.#isLive && !this.#stopping.signal.aborted) this.roster.drainer.begin(why);
    else void this.stop();
  }

  async stop(): Promise<void> {
    if (this.#stopping.signal.aborted) return this.stopped;
    this.#stopping.abort();
    this.roster.retire();
    this.tasks.retire();
    if (this.#starting !== undefined) await this.#quietly('start', this.#starting);
    await this.#quietly('link', this.link.stop());
    await this.#quietly('listener', this.#deps.ingress().stop());
    await Promise.all(Object.entries(this.#parts()).map(([name, part]) => this.#quietly(name, part.stop())));
    const databases = Object.values<Database>({ ...this.#deps.databases });
    await this.#quietly('databases', Promise.all(databases.map((database) => database.stop())));
    this.#deps.log.info('instance: stopped');
    this.#stopped.resolve();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  #parts(): Record<string, { stop(): Promise<unknown> }> {
    const { bus, backgroundServices } = this.#deps;
    return {
      ...backgroundServices?.(),
      duties: this.duties,
      tasks: this.tasks,
      waitlist: this.waitlist,
      events: this.events,
      servers: this.servers,
      'legacy agents': this.observer,
      'addresses of legacy agents': this.agentSources,
      roster: this.roster,
      bus,
    };
  }

  async #start(): Promise<void> {
    const { bus, backgroundServices, config, ingress, log } = this.#deps;
    const { signal } = this.#stopping;
    try {
      await this.#prepareDatabase(signal);
      await bus.start();
      if (signal.aborted) return;
      for (const service of Object.values(backgroundServices?.() ?? {})) service.start?.();
      await ingress().start();
      await this.roster.start(signal);
      if (signal.aborted) return;
      this.observer.start();
      this.agentSources.start();
      await this.tasks.start();
      this.duties.start();
      await this.waitlist.start();
      this.#isLive = true;
      const { datacenter } = config;
      log.info({ url: ingress().url, bus: bus.kind, datacenter, version: VERSION }, 'instance: ready');
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  }

  /**
   * The database may become unreachable again meanwhile: finished steps stay, the rest is repeated.
   */
  async #prepareDatabase(signal: AbortSignal): Promise<void> {
    const { clock, databases, log } = this.#deps;
    for (;;) {
      await waitForDatabase({ database: databases.main, clock, log, signal });
      try {
        await migrate(databases.main, migrations, { log });
        await this.servers.start();
        return await this.events.start();
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

  /** A part that fails to stop cleanly or in time must not keep the others running. */
  async #quietly(part: string, work: Promise<unknown>): Promise<void> {
    const { clock, log } = this.#deps;
    try {
      if (await settlesWithin(clock, PART_STOPS_WITHIN_MS, work)) return;
      log.warn({ part, after_ms: PART_STOPS_WITHIN_MS }, 'stopping: part left behind');
    } catch (error) {
      log.warn({ part, reason: messageOf(error) }, 'stopping: part failed');
    }
  }

  #identity() {
    const { cnapiUuid, host, advertiseHost } = this.#deps.config;
    const url = new URL(this.#deps.ingress().url);
    const port = Number(url.port || DEFAULT_PORTS[url.protocol]);
    if (advertiseHost !== undefined) url.hostname = advertiseHost.includes(':') ? `[${advertiseHost}]` : advertiseHost;
    return {
      cnapiUuid,
      url: url.origin,
      host: advertiseHost ?? host,
      port,
      pid: process.pid,
      version: VERSION,
    };
  }
}
