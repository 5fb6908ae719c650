/**
 * One API instance, put together: databases, bus, roster, tasks, waitlist, servers, link, REST. Only here do they meet.
 *
 *     new ──start()──▶ waiting for the database ──▶ migrated ──▶ listening ──▶ live ──stop()──▶ stopped
 *
 *                                                                              └──drain()──▶ draining ──▶ stopped
 *
 * `start()` waits for a database that is away; it fails on what waiting does not mend (a taken port, a refused password).
 * `drain()` leaves in good order: agents first, then callers. It stops at once when there is nobody to go to.
 * `stop()` may come at any time, tells agents to go elsewhere, writes no verdicts, and marks the run dead.
 */
import { LinkServer } from './agents/link-server.ts';
import { Registry } from './agents/registry.ts';
import type { Bus } from './bus/bus.ts';
import { createBus } from './bus/create-bus.ts';
import type { Config } from './config.ts';
import { messageOf } from './errors.ts';
import { Housekeeping, housekeepingMigrations } from './housekeeping.ts';
import { HttpListener } from './http/listener.ts';
import { Metrics } from './http/metrics.ts';
import { openApiDocument } from './http/openapi.ts';
import { routes } from './http/routes.ts';
import type { Services } from './http/services.ts';
import type { Logger } from './log.ts';
import { type Migration, migrate } from './moray/migrations.ts';
import { morayMigrations } from './moray/moray-schema.ts';
import { PostgresDatabase, waitForDatabase } from './moray/pool.ts';
import { isLoopback } from './old-agents/agent-address.ts';
import { OldAgentCaller } from './old-agents/caller.ts';
import { Observer } from './old-agents/observer.ts';
import { type Clock, isoNow } from './ports/clock.ts';
import type { Random } from './ports/random.ts';
import { Roster } from './roster/coordinator.ts';
import { forgetEndedRuns } from './roster/instance-store.ts';
import { rosterMigrations } from './roster/roster-schema.ts';
import { sightingMigrations } from './roster/sighting-schema.ts';
import { forgetSightings } from './roster/sighting-store.ts';
import { forgetStatusHistory } from './roster/status-history.ts';
import { serverMigrations } from './servers/server-schema.ts';
import { Servers } from './servers/servers.ts';
import { taskMigrations } from './tasks/task-schema.ts';
import { Tasks } from './tasks/tasks.ts';
import { VERSION } from './version.ts';
import { Waitlist } from './waitlist/waitlist.ts';
import { waitlistMigrations } from './waitlist/waitlist-schema.ts';

export const migrations: readonly Migration[] = [
  ...morayMigrations,
  ...rosterMigrations,
  ...sightingMigrations,
  ...serverMigrations,
  ...taskMigrations,
  ...waitlistMigrations,
  ...housekeepingMigrations,
];

export interface AppDeps {
  config: Config & { cnapiUuid: string };
  log: Logger;
  clock: Clock;
  random: Random;
}

/** A beat or a verdict that takes longer than this is a failed one. */
const SHORT_STATEMENT_MS = 1500;
/** A part that waits for a frozen database is left behind; its connections are cut at the end. */
const PART_STOPS_WITHIN_MS = 2500;
const KEEP_TASKS_DAYS = 30;
const KEEP_TICKETS_DAYS = 30;
const KEEP_HISTORY_DAYS = 90;
const FORGET_BATCH = 5_000;

export class App {
  readonly #deps: AppDeps;
  readonly #database: PostgresDatabase;
  readonly #beatDatabase: PostgresDatabase;
  readonly #verdictDatabase: PostgresDatabase;
  readonly #sightingDatabase: PostgresDatabase;
  readonly #bus: Bus;
  readonly #roster: Roster;
  readonly #registry: Registry;
  readonly #tasks: Tasks;
  readonly #waitlist: Waitlist;
  readonly #servers: Servers;
  readonly #observer: Observer;
  readonly #oldAgentCaller: OldAgentCaller;
  readonly #link: LinkServer;
  readonly #listener: HttpListener;
  readonly #housekeeping: Housekeeping;
  readonly #stopping = new AbortController();
  readonly #waitsOver = new AbortController();
  readonly #stopped = Promise.withResolvers<void>();
  #starting: Promise<void> | undefined;
  #isLive = false;

  constructor(deps: AppDeps) {
    const { config, log, clock, random } = deps;
    const { cnapiUuid } = config;
    this.#deps = deps;
    this.#database = this.#openDatabase('cnapi', { maxConnections: config.databasePoolSize });
    this.#beatDatabase = this.#openDatabase('cnapi beat', SHORT);
    this.#verdictDatabase = this.#openDatabase('cnapi verdicts', SHORT);
    this.#sightingDatabase = this.#openDatabase('cnapi sightings', SHORT);
    const database = this.#database;
    const ports = { clock, random, log };
    this.#bus = createBus({ redisUrl: config.redisUrl, databaseUrl: config.databaseUrl, ...ports });
    const common = { ...ports, database, bus: this.#bus, config };
    this.#roster = new Roster({
      ...common,
      cnapiUuid,
      beatDatabase: this.#beatDatabase,
      verdictDatabase: this.#verdictDatabase,
      identity: () => this.#identity(),
      door: {
        unanswered: () => this.#listener.unanswered + this.#tasks.stats().postsInFlight,
        announce: () => {
          this.#listener.announceLeave();
          this.#tasks.retire();
        },
        close: () => this.#listener.closeDoor(),
        endWaits: () => this.#waitsOver.abort(),
        leave: () => void this.stop(),
      },
    });
    this.#registry = new Registry({ sessions: this.#roster.sessions, run: () => this.#roster.instances.run });
    this.#waitlist = new Waitlist(common);
    this.#servers = new Servers({ database, clock, log, datacenter: config.datacenter });
    this.#observer = new Observer({
      database: this.#sightingDatabase,
      cnapiUuid,
      times: config,
      ticker: this.#roster.ticker,
      mayJudgeStrangers: () => this.#roster.instances.mayJudgeStrangers,
      clock,
      log,
    });
    const allowLoopback = isLoopback(config.host);
    this.#oldAgentCaller = new OldAgentCaller({
      database,
      servers: this.#servers,
      clock,
      version: VERSION,
      allowLoopback,
    });
    this.#tasks = new Tasks({ ...common, sessions: this.#registry, messenger: this.#oldAgentCaller });
    this.#link = new LinkServer({
      ...common,
      cnapiUuid,
      roster: this.#roster,
      registry: this.#registry,
      tasks: this.#tasks,
      servers: this.#servers,
    });
    this.#listener = this.#createListener();
    this.#housekeeping = this.#createHousekeeping();
    this.#roster.onRunMessage(
      (message) => message.kind === 'tasks' && this.#tasks.hint(message.server_uuid),
      () => this.#tasks.pollSoon(),
    );
    // What was posted under the old run must be moved to the new one before others count it as lost.
    this.#roster.instances.listen({ runRenewed: () => this.#tasks.pollSoon() });
  }

  /** Resolves when `stop()` has done its work. */
  get stopped(): Promise<void> {
    return this.#stopped.promise;
  }

  /** Where REST is served. */
  get url(): string {
    return this.#listener.url;
  }

  /** Resolves when the instance is live, or when it was stopped before. */
  start(): Promise<void> {
    this.#starting ??= this.#start();
    return this.#starting;
  }

  /** Leaves in good order, then stops; one that is not live yet stops at once. Again is harmless. */
  drain(why: string): void {
    if (this.#isLive && !this.#stopping.signal.aborted) this.#roster.drainer.begin(why);
    else void this.stop();
  }

  async stop(): Promise<void> {
    if (this.#stopping.signal.aborted) return this.stopped;
    this.#stopping.abort();
    this.#roster.retire();
    this.#tasks.retire();
    if (this.#starting !== undefined) await this.#quietly('start', this.#starting);
    await this.#quietly('link', this.#link.stop());
    await this.#quietly('listener', this.#listener.stop());
    const parts = {
      housekeeping: this.#housekeeping,
      tasks: this.#tasks,
      waitlist: this.#waitlist,
      servers: this.#servers,
      'old agents': this.#observer,
      roster: this.#roster,
      bus: this.#bus,
    };
    await Promise.all(Object.entries(parts).map(([name, part]) => this.#quietly(name, part.stop())));
    const databases = [this.#database, this.#beatDatabase, this.#verdictDatabase, this.#sightingDatabase];
    await this.#quietly('databases', Promise.all(databases.map((database) => database.stop())));
    this.#deps.log.info('instance: stopped');
    this.#stopped.resolve();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  async #start(): Promise<void> {
    const { clock, config, log } = this.#deps;
    const { signal } = this.#stopping;
    try {
      await waitForDatabase({ database: this.#database, clock, log, signal });
      await migrate(this.#database, migrations, { log });
      await this.#servers.start();
      await this.#bus.start();
      if (signal.aborted) return;
      await this.#listener.start();
      await this.#roster.start(signal);
      if (signal.aborted) return;
      this.#observer.start();
      await this.#tasks.start();
      await this.#waitlist.start();
      this.#housekeeping.start();
      this.#isLive = true;
      log.info(
        { url: this.url, bus: this.#bus.kind, datacenter: config.datacenter, version: VERSION },
        'instance: ready',
      );
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  }

  /** One part that does not stop cleanly, or in time, must not keep the others running. */
  async #quietly(part: string, work: Promise<unknown>): Promise<void> {
    const { clock, log } = this.#deps;
    const done = new AbortController();
    const settled = work
      .catch((error: unknown) => log.warn({ part, reason: messageOf(error) }, 'stopping: part failed'))
      .finally(() => done.abort());
    await Promise.race([settled, clock.sleep(PART_STOPS_WITHIN_MS, done.signal)]);
  }

  #openDatabase(
    applicationName: string,
    limits: { maxConnections: number; statementTimeoutMs?: number; queryTimeoutMs?: number },
  ) {
    const { config, clock, log } = this.#deps;
    return new PostgresDatabase({ url: config.databaseUrl, applicationName, clock, log, ...limits });
  }

  #identity() {
    const { cnapiUuid, host, advertiseHost } = this.#deps.config;
    const { url } = this.#listener;
    return {
      cnapiUuid,
      url,
      host: advertiseHost ?? host,
      port: Number(new URL(url).port || 80),
      pid: process.pid,
      version: VERSION,
    };
  }

  #createListener(): HttpListener {
    const { config, clock, random, log } = this.#deps;
    const metrics = this.#createMetrics();
    return new HttpListener({
      config,
      version: VERSION,
      routes,
      metrics,
      clock,
      random,
      log,
      services: this.#services(metrics),
      onUpgrade: (request, socket, head, serverUuid) => this.#link.upgrade(request, socket, head, serverUuid),
    });
  }

  #services(metrics: Metrics): Services {
    const { clock, log } = this.#deps;
    const roster = this.#roster;
    return {
      version: VERSION,
      startedAt: isoNow(clock),
      servers: this.#servers,
      tasks: this.#tasks,
      waitlist: this.#waitlist,
      oldAgentCaller: this.#oldAgentCaller,
      roster: {
        instances: () => roster.views(),
        drain: (cnapiUuid) => roster.drain(cnapiUuid),
        statusHistory: (serverUuid, page) => roster.statusHistory(serverUuid, page),
        removeServer: (serverUuid) => roster.removeServer(serverUuid),
        isReady: () => roster.readiness(),
      },
      oldAgents: this.#observer,
      waitsOver: this.#waitsOver.signal,
      health: () => ({ database: roster.instances.isDatabaseWell, bus: this.#bus.isHealthy() }),
      lastHeartbeat: (serverUuid) => {
        const session = roster.sessions.get(serverUuid);
        return session ? new Date(clock.wallTime() - (clock.now() - session.heardAt)).toISOString() : null;
      },
      logLevel: { get: () => log.level(), set: (level) => log.level(level) },
      metrics: () => metrics.read(),
      openApi: () => openApiDocument(routes, VERSION),
    };
  }

  #createMetrics(): Metrics {
    const { config } = this.#deps;
    const roster = this.#roster;
    return new Metrics({
      labels: { datacenter: config.datacenter, instance: config.cnapiUuid, server: config.host, service: 'cnapi' },
      agents: () => roster.sessions.size + this.#observer.heartbeating,
      tasks: () => this.#tasks.stats(),
      waitlist: () => this.#waitlist.stats(),
      bus: () => ({ ...this.#bus.stats(), healthy: this.#bus.isHealthy() }),
      pool: () => this.#database.stats,
      counters: () => ({
        roster_verdicts_queued: roster.verdicts.queued,
        roster_ownerless_rows: roster.reaper.orphans,
        roster_incarnation_alternations_total: roster.authority.alternations,
        roster_agents_shed_total: roster.balancer.shed,
        ...this.#observer.counters(),
        ...this.#oldAgentCaller.counters(),
        instance_draining: Number(roster.drainer.isDraining),
      }),
    });
  }

  #createHousekeeping(): Housekeeping {
    const database = this.#database;
    return new Housekeeping({
      database,
      log: this.#deps.log,
      chores: [
        { name: 'old tasks', batch: () => this.#tasks.deleteOlderThan(KEEP_TASKS_DAYS) },
        { name: 'old tickets', batch: () => this.#waitlist.deleteOlderThan(KEEP_TICKETS_DAYS) },
        { name: 'old status history', batch: () => forgetStatusHistory(database, KEEP_HISTORY_DAYS, FORGET_BATCH) },
        { name: 'sightings of removed servers', batch: () => forgetSightings(database, FORGET_BATCH) },
        { name: 'ended runs', batch: () => forgetEndedRuns(database) },
      ],
    });
  }
}

const SHORT = { maxConnections: 1, statementTimeoutMs: SHORT_STATEMENT_MS, queryTimeoutMs: SHORT_STATEMENT_MS + 500 };
