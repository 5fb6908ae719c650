/**
 * One API instance: the core with real databases, a real bus and a restify listener, and with
 * access, audit, metrics, housekeeping and the watch for promotions. Only this file connects them.
 * The core starts, drains and stops them.
 */

import type { Bus } from '../platform/bus/bus.ts';
import { createBus } from '../platform/bus/create-bus.ts';
import { type Clock, isoNow } from '../platform/clock.ts';
import { type EventLoop, systemEventLoop } from '../platform/event-loop.ts';
import type { Logger } from '../platform/log.ts';
import { DatabaseHosts } from '../platform/postgres/hosts.ts';
import { PostgresDatabase, type PostgresDeps } from '../platform/postgres/pool.ts';
import { WriteHealth } from '../platform/postgres/write-health.ts';
import type { Random } from '../platform/random.ts';
import { VERSION } from '../platform/version.ts';
import { contractList } from '../protocol/api/contracts.ts';
import { openApiDocument } from '../protocol/api/openapi.ts';
import { Gate } from './access/gate.ts';
import { NewServers } from './access/new-servers.ts';
import { SignIn } from './access/sign-in.ts';
import { tokenRoutes } from './access/token-routes.ts';
import { forgetTokens } from './access/token-store.ts';
import { Tokens } from './access/tokens.ts';
import { AuditLog } from './audit/audit-log.ts';
import { auditRoutes } from './audit/audit-routes.ts';
import { forgetAudit } from './audit/audit-store.ts';
import type { Config } from './config.ts';
import { type BackgroundService, Core } from './core.ts';
import { coreRoutes } from './core-routes.ts';
import { DescriptorWatch } from './descriptors.ts';
import { Housekeeping } from './housekeeping/housekeeping.ts';
import { Certificates } from './http/certificates.ts';
import { Limits } from './http/limits.ts';
import { HttpListener } from './http/listener.ts';
import { Metrics } from './http/metrics.ts';
import { processRoutes } from './http/process-routes.ts';
import { RequestAuthorizer } from './http/request-authorizer.ts';
import type { Route } from './http/route.ts';
import { Scrape } from './http/scrape.ts';
import { forgetSightings } from './legacy/sighting-store.ts';
import { forgetSources } from './legacy/source-store.ts';
import { PromotionWatch } from './promotion.ts';
import type { Readiness } from './roster/coordinator.ts';
import { forgetEndedRuns } from './roster/instance-store.ts';
import { forgetStatusHistory } from './roster/status-history.ts';
import { requireServerOf } from './servers/routes/server-precondition.ts';

export interface AppDeps {
  config: Config & { cnapiUuid: string };
  log: Logger;
  clock: Clock;
  random: Random;
  /** Default: the process's own. */
  eventLoop?: EventLoop;
}

/** A beat or a status change that takes longer than this has failed. */
const SHORT_STATEMENT_MS = 1500;
const SHORT = { maxConnections: 1, statementTimeoutMs: SHORT_STATEMENT_MS, queryTimeoutMs: SHORT_STATEMENT_MS + 500 };
/** One for each kind of statement that admits agents: digest, accept, inventory. */
const ARRIVAL_CONNECTIONS = 3;
const KEEP_TASKS_DAYS = 30;
const KEEP_TICKETS_DAYS = 30;
const KEEP_HISTORY_DAYS = 90;
const KEEP_AUDIT_DAYS = 400;
/** Counted from the end of the token. */
const KEEP_TOKENS_DAYS = 400;
const KEEP_EVENTS_DAYS = 7;
/** After this time without a post from an address, no agent is called there. */
const KEEP_SOURCES_DAYS = 7;
const FORGET_BATCH = 5_000;

export class App {
  readonly #deps: AppDeps;
  readonly #databaseHosts: DatabaseHosts;
  readonly #database: PostgresDatabase;
  readonly #bus: Bus;
  readonly #core: Core;
  readonly #certificates: Certificates | undefined;
  /** Separate, so no caller of this instance can delay the end of a token. */
  readonly #accessDatabase: PostgresDatabase;
  readonly #backgroundServices: Readonly<Record<string, BackgroundService>>;
  readonly #signIn: SignIn;
  readonly #gate: Gate;
  readonly #audit: AuditLog;
  readonly #newServers: NewServers;
  readonly #limits: Limits;
  readonly #listener: HttpListener;
  readonly #housekeeping: Housekeeping;
  readonly #writes: WriteHealth;
  #metrics: Metrics | undefined;

  constructor(deps: AppDeps) {
    const { config, clock, random, log } = deps;
    this.#deps = deps;
    this.#databaseHosts = new DatabaseHosts(config.databaseUrl, log);
    const onDone = (seconds: number) => this.#metrics?.countStatement(seconds);
    this.#database = this.#openDatabase('cnapi', { maxConnections: config.databasePoolSize, onDone });
    this.#writes = new WriteHealth({ database: this.#database, clock, log });
    const databaseUrl = config.databaseDirectUrl ?? this.#databaseHosts;
    this.#bus = createBus({ redisUrl: config.redisUrl, databaseUrl, clock, random, log });
    this.#core = new Core({
      ...deps,
      eventLoop: deps.eventLoop ?? systemEventLoop(),
      databases: {
        main: this.#database,
        arrivals: this.#openDatabase('cnapi arrivals', { maxConnections: ARRIVAL_CONNECTIONS }),
        beats: this.#openDatabase('cnapi beat', SHORT),
        sessionLosses: this.#openDatabase('cnapi session losses', SHORT),
        sightings: this.#openDatabase('cnapi sightings', SHORT),
      },
      bus: this.#bus,
      ingress: () => this.#listener,
      backgroundServices: () => this.#backgroundServices,
    });
    this.#certificates = this.#createCertificates();
    this.#accessDatabase = this.#openDatabase('cnapi access', SHORT);
    const database = this.#database;
    this.#signIn = new SignIn({ database: this.#accessDatabase, clock, log });
    this.#gate = new Gate({ config, clock, signIn: this.#signIn });
    this.#audit = new AuditLog({ database, cnapiUuid: config.cnapiUuid, clock, random, log });
    const { access, newServersPerHour } = config;
    this.#newServers = new NewServers({ clock, newServersPerHour: access === 'open' ? 0 : newServersPerHour });
    this.#limits = new Limits(config, { clock, log });
    this.#listener = this.#createListener();
    this.#housekeeping = this.#createHousekeeping();
    this.#backgroundServices = this.#createBackgroundServices();
  }

  /** Resolves when `stop()` has done its work. */
  get stopped(): Promise<void> {
    return this.#core.stopped;
  }

  /** The URL that serves REST. */
  get url(): string {
    return this.#listener.url;
  }

  /** Resolves when the instance is live, or when it was stopped before. */
  async start(): Promise<void> {
    await this.#certificates?.load();
    await this.#core.start();
  }

  /**
   * Reads the certificate again. A certificate that cannot be used is logged, and the previous one
   * stays.
   */
  async reload(): Promise<void> {
    this.#deps.log.info(this.#certificates ? 'reload: the certificate is read again' : 'reload: nothing to read again');
    await this.#certificates?.reload();
  }

  /**
   * Drains, then stops; an instance that is not live yet stops at once. Repeating it is harmless.
   */
  drain(why: string): void {
    this.#core.drain(why);
  }

  stop(): Promise<void> {
    return this.#core.stop();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  /** Parts that run beside the core. */
  #createBackgroundServices(): Record<string, BackgroundService> {
    const signIn = {
      start: () => this.#signIn.start(),
      stop: async () => {
        await this.#signIn.stop();
        await this.#accessDatabase.stop();
      },
    };
    return {
      housekeeping: this.#housekeeping,
      'sign-in': signIn,
      audit: this.#audit,
      'promotion watch': this.#createPromotionWatch(),
      descriptors: this.#createDescriptorWatch(),
      'check of writes': this.#writes,
    };
  }

  #openDatabase(
    applicationName: string,
    limits: Pick<PostgresDeps, 'maxConnections' | 'statementTimeoutMs' | 'queryTimeoutMs' | 'onDone'>,
  ) {
    const { config, clock, log } = this.#deps;
    const pooler = config.databasePooler;
    const deadlines = databaseDeadlines(config.leaseMs);
    return new PostgresDatabase({
      url: this.#databaseHosts,
      pooler,
      applicationName,
      clock,
      log,
      ...deadlines,
      ...limits,
      onError: (error) => this.#writes.noteError(error),
    });
  }

  #createCertificates(): Certificates | undefined {
    const { config, clock, log } = this.#deps;
    const { tlsCertFile: certFile, tlsKeyFile: keyFile } = config;
    if (certFile === undefined || keyFile === undefined) return undefined;
    return new Certificates({ files: { certFile, keyFile }, clock, log });
  }

  #createListener(): HttpListener {
    const { config, clock, random, log } = this.#deps;
    const metrics = this.#createMetrics();
    this.#metrics = metrics;
    return new HttpListener({
      config,
      version: VERSION,
      routes: this.#routes(metrics),
      metrics,
      clock,
      random,
      log,
      requireServer: requireServerOf(this.#core.servers),
      certificates: this.#certificates,
      limits: this.#limits,
      authorizer: new RequestAuthorizer({
        gate: this.#gate,
        audit: this.#audit,
        isDatabaseHealthy: () => this.#core.roster.instances.isDatabaseHealthy,
        log,
      }),
      onArrival: () => this.#core.link.arrive(),
      onUpgrade: (request, upgrade, actor) =>
        this.#core.link.upgrade(request, upgrade, () =>
          this.#newServers.refusalOf(actor, request.socket.remoteAddress ?? '', upgrade.serverUuid),
        ),
    });
  }

  #routes(metrics: Metrics): Route[] {
    const { clock, config, log, random } = this.#deps;
    const { roster, tasks, waitlist } = this.#core;
    return [
      ...processRoutes({
        version: VERSION,
        startedAt: isoNow(clock),
        isReady: () => this.#readiness(),
        health: () => ({ database: roster.instances.isDatabaseHealthy, bus: this.#bus.isHealthy() }),
        stats: () => ({ tasks: { ...tasks.stats() }, waitlist: { ...waitlist.stats() } }),
        logLevel: { get: () => log.level(), set: (level) => log.level(level) },
        metrics: () => metrics.read(),
        openApi: () => openApiDocument(contractList, VERSION),
      }),
      ...coreRoutes(this.#core, { cnapiUuid: config.cnapiUuid, newServers: this.#newServers, clock }),
      ...tokenRoutes({ tokens: new Tokens({ database: this.#database, random }) }),
      ...auditRoutes({ audit: this.#audit }),
    ];
  }

  /**
   * Not ready while nothing can be written, although the instance holds its lease and its agents:
   * callers go to another instance.
   */
  #readiness(): Readiness {
    const { reasons } = this.#core.roster.readiness();
    const trouble = this.#writes.trouble;
    const all = trouble === undefined || reasons.includes(trouble) ? reasons : [...reasons, trouble];
    return { ready: all.length === 0, reasons: all };
  }

  #createMetrics(): Metrics {
    const { config } = this.#deps;
    const { link, roster, servers, duties, tasks, waitlist, events, legacyAgentApi, observer } = this.#core;
    return new Metrics({
      build: {
        version: VERSION,
        node: process.version,
        datacenter: config.datacenter,
        cnapiUuid: config.cnapiUuid,
        host: config.host,
      },
      agents: () => roster.sessions.size + observer.heartbeating,
      tasks: () => tasks.stats(),
      waitlist: () => waitlist.stats(),
      events: () => events.stats(),
      bus: () => ({ ...this.#bus.stats(), healthy: this.#bus.isHealthy() }),
      pool: () => this.#database.stats,
      scrape: new Scrape(
        {
          servers: () => servers.counts(),
          taskTimes: () => tasks.recentTimes(),
          lockWaits: () => waitlist.recentWaits(),
        },
        this.#deps.clock,
      ),
      counters: () => ({
        roster_losses_queued: roster.sessionLosses.queued,
        roster_ownerless_rows: roster.reaper.orphans,
        roster_incarnation_alternations_total: roster.authority.alternations,
        roster_agents_shed_total: roster.balancer.shed,
        link_frames_refused_total: link.counters.framesRefused,
        link_reads_paused_total: link.counters.readsPaused,
        servers_reports_dropped_total: servers.droppedReports,
        link_upgrades_refused_total: link.refused,
        link_returns_refused_total: roster.authority.returnsRefused,
        link_arrivals_admitted_total: roster.arrivals.admitted,
        link_arrivals_under_way: roster.arrivals.underWay,
        database_round_trip_seconds: roster.instances.roundTripMs / 1000,
        link_admission_rate: roster.arrivals.rate,
        zone_at_capacity: Number(roster.isZoneAtCapacity),
        ...observer.counters(),
        ...legacyAgentApi.counters(),
        ...duties.counters(),
        access_sign_ins_failed_total: this.#gate.stats.signInsFailed,
        access_requests_limited_total: this.#gate.stats.requestsLimited,
        access_connections_limited_total: this.#gate.stats.connectionsLimited,
        access_new_servers_refused_total: this.#newServers.refused,
        access_links_refused_total: this.#gate.stats.linksRefused,
        audit_dropped_total: this.#audit.dropped,
        audit_refusals_unkept_total: this.#audit.unkept,
        instance_draining: Number(roster.drainer.isDraining),
        database_healthy: Number(roster.instances.isDatabaseHealthy),
        database_writable: Number(this.#writes.trouble === undefined),
        // Metrics ask for the names of the counters before the listener exists.
        ...this.#limits.counters,
        http_connections_cut_total: (this.#listener as HttpListener | undefined)?.cutConnections ?? 0,
        ...(this.#certificates && { tls_certificate_expires_seconds: this.#certificates.expiresInSeconds }),
        ...(this.#certificates && {
          tls_handshakes_failed_total: (this.#listener as HttpListener | undefined)?.failedHandshakes ?? 0,
        }),
      }),
    });
  }

  #createDescriptorWatch(): DescriptorWatch {
    const { config, clock, log } = this.#deps;
    return new DescriptorWatch({ maxAgents: config.maxAgents, clock, log });
  }

  #createPromotionWatch(): PromotionWatch {
    const { config, clock, log } = this.#deps;
    const { link, roster } = this.#core;
    return new PromotionWatch({
      database: this.#database,
      sessions: roster.sessions,
      cnapiUuid: config.cnapiUuid,
      addresses: () => roster.addresses(),
      takesAgents: () => link.takesAgents,
      dismiss: (session, why) => roster.sessionLosses.supersede(session, why),
      periodMs: config.slowPollMs,
      askAgainMs: config.reconnectMaxMs,
      clock,
      log,
    });
  }

  #createHousekeeping(): Housekeeping {
    const database = this.#database;
    const { duties, tasks, waitlist, events } = this.#core;
    const { clock, log } = this.#deps;
    return new Housekeeping({
      database,
      clock,
      log,
      chores: [
        { name: 'old tasks', batch: () => tasks.deleteOlderThan(KEEP_TASKS_DAYS) },
        { name: 'old duties', batch: () => duties.deleteOlderThan(KEEP_TASKS_DAYS) },
        { name: 'old tickets', batch: () => waitlist.deleteOlderThan(KEEP_TICKETS_DAYS) },
        { name: 'old status history', batch: () => forgetStatusHistory(database, KEEP_HISTORY_DAYS, FORGET_BATCH) },
        { name: 'old events', batch: () => events.forgetOlderThan(KEEP_EVENTS_DAYS) },
        { name: 'sightings of removed servers', batch: () => forgetSightings(database, FORGET_BATCH) },
        { name: 'addresses of legacy agents', batch: () => forgetSources(database, KEEP_SOURCES_DAYS, FORGET_BATCH) },
        { name: 'old audit', batch: () => forgetAudit(database, KEEP_AUDIT_DAYS, FORGET_BATCH) },
        { name: 'ended tokens', batch: () => forgetTokens(database, KEEP_TOKENS_DAYS, FORGET_BATCH) },
        { name: 'ended runs', batch: () => forgetEndedRuns(database) },
      ],
    });
  }
}

/**
 * Time limits for statements. The statements of an instance that stopped or was cut off end before
 * another instance declares it dead. Their locks therefore never keep its agents from being
 * accepted there (invariants I1, I6).
 */
function databaseDeadlines(leaseMs: number): { statementTimeoutMs: number; queryTimeoutMs: number } {
  return {
    statementTimeoutMs: Math.min(10_000, Math.round(0.6 * leaseMs)),
    queryTimeoutMs: Math.min(12_000, Math.round(0.8 * leaseMs)),
  };
}
