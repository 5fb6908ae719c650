/**
 * One API instance, put together: the core, over real databases, a real bus and a restify listener, with access, audit, metrics,
 * housekeeping and an eye on promotions. Only here do they meet. How it starts, drains and stops is the core's.
 */
import { Gate } from './access/gate.ts';
import { SignIn } from './access/sign-in.ts';
import { forgetTokens } from './access/token-store.ts';
import { Tokens } from './access/tokens.ts';
import { AuditLog } from './audit/audit-log.ts';
import { forgetAudit } from './audit/audit-store.ts';
import type { Bus } from './bus/bus.ts';
import { createBus } from './bus/create-bus.ts';
import type { Config } from './config.ts';
import { type Companion, Core } from './core.ts';
import { Housekeeping } from './housekeeping.ts';
import { Certificates } from './http/certificates.ts';
import { Entrance } from './http/entrance.ts';
import { HttpListener } from './http/listener.ts';
import { Metrics } from './http/metrics.ts';
import { openApiDocument } from './http/openapi.ts';
import { routes } from './http/routes.ts';
import type { Services } from './http/services.ts';
import type { Logger } from './log.ts';
import { DatabaseHosts } from './moray/hosts.ts';
import { PostgresDatabase } from './moray/pool.ts';
import { forgetSightings } from './old-agents/sighting-store.ts';
import { type Clock, isoNow } from './ports/clock.ts';
import type { Random } from './ports/random.ts';
import { PromotionWatch } from './promotion.ts';
import { forgetEndedRuns } from './roster/instance-store.ts';
import { forgetStatusHistory } from './roster/status-history.ts';
import { VERSION } from './version.ts';

export interface AppDeps {
  config: Config & { cnapiUuid: string };
  log: Logger;
  clock: Clock;
  random: Random;
}

/** A beat or a verdict that takes longer than this is a failed one. */
const SHORT_STATEMENT_MS = 1500;
const SHORT = { maxConnections: 1, statementTimeoutMs: SHORT_STATEMENT_MS, queryTimeoutMs: SHORT_STATEMENT_MS + 500 };
const KEEP_TASKS_DAYS = 30;
const KEEP_TICKETS_DAYS = 30;
const KEEP_HISTORY_DAYS = 90;
const KEEP_AUDIT_DAYS = 400;
/** After their end. */
const KEEP_TOKENS_DAYS = 400;
const KEEP_EVENTS_DAYS = 7;
const FORGET_BATCH = 5_000;

export class App {
  readonly #deps: AppDeps;
  readonly #databaseHosts: DatabaseHosts;
  readonly #database: PostgresDatabase;
  readonly #bus: Bus;
  readonly #core: Core;
  readonly #certificates: Certificates | undefined;
  /** So that no caller of this instance can hold up the end of a token. */
  readonly #accessDatabase: PostgresDatabase;
  readonly #companions: Readonly<Record<string, Companion>>;
  readonly #signIn: SignIn;
  readonly #gate: Gate;
  readonly #audit: AuditLog;
  readonly #listener: HttpListener;
  readonly #housekeeping: Housekeeping;

  constructor(deps: AppDeps) {
    const { config, clock, random, log } = deps;
    this.#deps = deps;
    this.#databaseHosts = new DatabaseHosts(config.databaseUrl, log);
    this.#database = this.#openDatabase('cnapi', { maxConnections: config.databasePoolSize });
    const databaseUrl = config.databaseDirectUrl ?? this.#databaseHosts;
    this.#bus = createBus({ redisUrl: config.redisUrl, databaseUrl, clock, random, log });
    this.#core = new Core({
      ...deps,
      databases: {
        main: this.#database,
        beats: this.#openDatabase('cnapi beat', SHORT),
        verdicts: this.#openDatabase('cnapi verdicts', SHORT),
        sightings: this.#openDatabase('cnapi sightings', SHORT),
      },
      bus: this.#bus,
      door: () => this.#listener,
      companions: () => this.#companions,
    });
    this.#certificates = this.#createCertificates();
    this.#accessDatabase = this.#openDatabase('cnapi access', SHORT);
    const database = this.#database;
    this.#signIn = new SignIn({ database: this.#accessDatabase, clock, log });
    this.#gate = new Gate({ config, clock, signIn: this.#signIn });
    this.#audit = new AuditLog({ database, cnapiUuid: config.cnapiUuid, clock, random, log });
    this.#listener = this.#createListener();
    this.#housekeeping = this.#createHousekeeping();
    this.#companions = this.#createCompanions();
  }

  /** Resolves when `stop()` has done its work. */
  get stopped(): Promise<void> {
    return this.#core.stopped;
  }

  /** Where REST is served. */
  get url(): string {
    return this.#listener.url;
  }

  /** Resolves when the instance is live, or when it was stopped before. */
  async start(): Promise<void> {
    await this.#certificates?.load();
    await this.#core.start();
  }

  /** Reads its certificate anew; what cannot be used is logged, and the one before stays. */
  async reload(): Promise<void> {
    this.#deps.log.info(this.#certificates ? 'reload: the certificate is read anew' : 'reload: nothing to read anew');
    await this.#certificates?.reload();
  }

  /** Leaves in good order, then stops; one that is not live yet stops at once. Again is harmless. */
  drain(why: string): void {
    this.#core.drain(why);
  }

  stop(): Promise<void> {
    return this.#core.stop();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  /** What runs beside the core. */
  #createCompanions(): Record<string, Companion> {
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
    };
  }

  #openDatabase(
    applicationName: string,
    limits: { maxConnections: number; statementTimeoutMs?: number; queryTimeoutMs?: number },
  ) {
    const { config, clock, log } = this.#deps;
    const pooler = config.databasePooler;
    return new PostgresDatabase({ url: this.#databaseHosts, pooler, applicationName, clock, log, ...limits });
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
    return new HttpListener({
      config,
      version: VERSION,
      routes,
      metrics,
      clock,
      random,
      log,
      services: this.#services(metrics),
      certificates: this.#certificates,
      entrance: new Entrance({ gate: this.#gate, audit: this.#audit, log }),
      onUpgrade: (request, socket, head, serverUuid) => this.#core.link.upgrade(request, socket, head, serverUuid),
    });
  }

  #services(metrics: Metrics): Services {
    const { clock, log, random } = this.#deps;
    const { roster, servers, tasks, waitlist, events, oldAgentCaller, observer, waitsOver } = this.#core;
    return {
      version: VERSION,
      startedAt: isoNow(clock),
      servers,
      tasks,
      waitlist,
      events,
      oldAgentCaller,
      roster: {
        instances: () => roster.views(),
        drain: (cnapiUuid) => roster.drain(cnapiUuid),
        statusHistory: (serverUuid, page) => roster.statusHistory(serverUuid, page),
        removeServer: (serverUuid) => roster.removeServer(serverUuid),
        isReady: () => roster.readiness(),
      },
      oldAgents: observer,
      tokens: new Tokens({ database: this.#database, random }),
      audit: this.#audit,
      waitsOver,
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
    const { roster, tasks, waitlist, events, oldAgentCaller, observer } = this.#core;
    return new Metrics({
      labels: { datacenter: config.datacenter, instance: config.cnapiUuid, server: config.host, service: 'cnapi' },
      agents: () => roster.sessions.size + observer.heartbeating,
      tasks: () => tasks.stats(),
      waitlist: () => waitlist.stats(),
      events: () => events.stats(),
      bus: () => ({ ...this.#bus.stats(), healthy: this.#bus.isHealthy() }),
      pool: () => this.#database.stats,
      counters: () => ({
        roster_verdicts_queued: roster.verdicts.queued,
        roster_ownerless_rows: roster.reaper.orphans,
        roster_incarnation_alternations_total: roster.authority.alternations,
        roster_agents_shed_total: roster.balancer.shed,
        ...observer.counters(),
        ...oldAgentCaller.counters(),
        access_sign_ins_failed_total: this.#gate.stats.signInsFailed,
        access_requests_limited_total: this.#gate.stats.requestsLimited,
        access_connections_limited_total: this.#gate.stats.connectionsLimited,
        access_links_refused_total: this.#gate.stats.linksRefused,
        audit_dropped_total: this.#audit.dropped,
        audit_refusals_unkept_total: this.#audit.unkept,
        instance_draining: Number(roster.drainer.isDraining),
        database_healthy: Number(roster.instances.isDatabaseWell),
        // Metrics ask for the names before there is a listener.
        http_connections_cut_total: (this.#listener as HttpListener | undefined)?.cutConnections ?? 0,
        ...(this.#certificates && { tls_certificate_expires_seconds: this.#certificates.expiresInSeconds }),
        ...(this.#certificates && {
          tls_handshakes_failed_total: (this.#listener as HttpListener | undefined)?.failedHandshakes ?? 0,
        }),
      }),
    });
  }

  #createPromotionWatch(): PromotionWatch {
    const { config, clock, log } = this.#deps;
    const { link, roster } = this.#core;
    return new PromotionWatch({
      database: this.#database,
      sessions: roster.sessions,
      cnapiUuid: config.cnapiUuid,
      addresses: () => roster.addresses(),
      takesAgents: () => link.refusal() === undefined,
      dismiss: (session, why) => roster.verdicts.supersede(session, why),
      periodMs: config.slowPollMs,
      askAgainMs: config.reconnectMaxMs,
      clock,
      log,
    });
  }

  #createHousekeeping(): Housekeeping {
    const database = this.#database;
    const { tasks, waitlist, events } = this.#core;
    return new Housekeeping({
      database,
      log: this.#deps.log,
      chores: [
        { name: 'old tasks', batch: () => tasks.deleteOlderThan(KEEP_TASKS_DAYS) },
        { name: 'old tickets', batch: () => waitlist.deleteOlderThan(KEEP_TICKETS_DAYS) },
        { name: 'old status history', batch: () => forgetStatusHistory(database, KEEP_HISTORY_DAYS, FORGET_BATCH) },
        { name: 'old events', batch: () => events.forgetOlderThan(KEEP_EVENTS_DAYS) },
        { name: 'sightings of removed servers', batch: () => forgetSightings(database, FORGET_BATCH) },
        { name: 'old audit', batch: () => forgetAudit(database, KEEP_AUDIT_DAYS, FORGET_BATCH) },
        { name: 'ended tokens', batch: () => forgetTokens(database, KEEP_TOKENS_DAYS, FORGET_BATCH) },
        { name: 'ended runs', batch: () => forgetEndedRuns(database) },
      ],
    });
  }
}
