/**
 * One API instance: the core with real databases, a real bus and a restify listener, and with
 * access, audit, metrics, housekeeping and the watch for promotions. Only this file connects them.
 * `subsystem-host.ts` starts, drains and stops them.
 */

import type { Bus } from '../platform/bus/bus.ts';
import { createBus } from '../platform/bus/create-bus.ts';
import type { Logger } from '../platform/log.ts';
import { DatabaseHosts } from '../platform/postgres/hosts.ts';
import { PostgresDatabase, type PostgresDeps } from '../platform/postgres/pool.ts';
import { WriteHealth } from '../platform/postgres/write-health.ts';
import type { Random } from '../platform/random.ts';
import { type Clock, isoNow } from '../platform/time/clock.ts';
import { type EventLoop, systemEventLoop } from '../platform/time/event-loop.ts';
import { VERSION } from '../platform/version.ts';
import { allContracts, documentKinds } from '../protocol/api/all-contracts.ts';
import { openApiBytes } from '../protocol/api/contract/openapi.ts';
import { Authenticator } from './access/authenticator.ts';
import { NewServerLimiter } from './access/new-server-limiter.ts';
import { TokenAuthenticator } from './access/token-authenticator.ts';
import { AuditLog } from './audit/audit-log.ts';
import { ChefAuthentication } from './chef/signatures/chef-authentication.ts';
import type { Config } from './config.ts';
import { Core, type CoreDatabases } from './core.ts';
import { CallerLimits } from './http/limits/caller-limits.ts';
import { Certificates } from './http/listener/certificates.ts';
import { type Handlers, HttpListener } from './http/listener/listener.ts';
import { RequestMetrics } from './http/listener/request-metrics.ts';
import { RequestPipeline } from './http/listener/request-pipeline.ts';
import type { ProcessRouteDeps } from './http/routes/process-routes.ts';
import { Metrics } from './metrics/metrics.ts';
import type { Readiness } from './roster/roster.ts';
import { createServerPrecondition } from './servers/routes/server-precondition.ts';
import { SubsystemHost } from './subsystem-host.ts';
import { migrations, subsystems } from './subsystem-list.ts';

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
const STATEMENT_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

export class App {
  readonly #deps: AppDeps;
  readonly #databaseHosts: DatabaseHosts;
  readonly #database: PostgresDatabase;
  readonly #writes: WriteHealth;
  readonly #bus: Bus;
  readonly #metrics: Metrics;
  readonly #certificates: Certificates | undefined;
  readonly #authenticator: Authenticator;
  readonly #audit: AuditLog;
  readonly #newServers: NewServerLimiter;
  readonly #listener: HttpListener;
  readonly #subsystemHost: SubsystemHost;
  readonly #core: Core;

  constructor(deps: AppDeps) {
    const { config, clock, random, log } = deps;
    const { cnapiUuid, datacenter, host } = config;
    this.#deps = deps;
    const build = { version: VERSION, node: process.version, datacenter, cnapiUuid, host };
    this.#metrics = new Metrics({ build, clock });
    this.#databaseHosts = new DatabaseHosts(config.databaseUrl, log);
    const database = this.#openMainDatabase();
    this.#database = database;
    this.#writes = new WriteHealth({ database, clock, log });
    const databaseUrl = config.databaseDirectUrl ?? this.#databaseHosts;
    this.#bus = createBus({ redisUrl: config.redisUrl, databaseUrl, clock, random, log });

    this.#certificates = this.#createCertificates();
    // Separate, so no caller of this instance can delay the end of a token.
    const tokenDatabase = this.#openDatabase('cnapi access', SHORT);
    const tokenBackgroundDatabase = this.#openDatabase('cnapi access background', SHORT);
    const tokenAuthenticator = new TokenAuthenticator({
      database: tokenDatabase,
      backgroundDatabase: tokenBackgroundDatabase,
      clock,
      log,
    });
    this.#authenticator = new Authenticator({ config, clock, tokenAuthenticator });
    this.#audit = new AuditLog({ database, cnapiUuid, clock, random, log });
    const { access, newServersPerHour } = config;
    this.#newServers = new NewServerLimiter({ clock, newServersPerHour: access === 'open' ? 0 : newServersPerHour });
    const limits = new CallerLimits(config, { clock, log });
    this.#listener = this.#createListener(limits);

    const databases = this.#openDatabases();
    const { arrivals, beats, sessionLosses, legacyHeartbeats } = databases;
    const all = [database, arrivals, beats, sessionLosses, legacyHeartbeats] as const;
    this.#subsystemHost = new SubsystemHost({ databases: all, migrations, clock, log });
    this.#core = new Core({
      ...deps,
      eventLoop: deps.eventLoop ?? systemEventLoop(),
      databases,
      bus: this.#bus,
      ingress: this.#listener,
      newServers: this.#newServers,
      subsystemHost: this.#subsystemHost,
    });
    this.#subsystemHost.open(subsystems, {
      ...this.#core,
      documentKinds,
      database,
      writes: this.#writes,
      authenticator: this.#authenticator,
      tokenAuthenticator,
      tokenDatabase,
      tokenBackgroundDatabase,
      newServers: this.#newServers,
      audit: this.#audit,
      listener: this.#listener,
      limits,
      certificates: this.#certificates,
      handlers: this.#handlers(),
      aboutProcess: this.#aboutProcess(),
    });
    this.#metrics.add(this.#subsystemHost.metrics);
  }

  /** Resolves when `stop()` has done its work. */
  get stopped(): Promise<void> {
    return this.#subsystemHost.stopped;
  }

  /** The URL that serves REST. */
  get url(): string {
    return this.#listener.url;
  }

  /** Resolves when the instance is live, or when it was stopped before. */
  async start(): Promise<void> {
    const { config, log } = this.#deps;
    await this.#certificates?.load();
    await this.#subsystemHost.start();
    if (!this.#subsystemHost.isLive) return;
    const fields = { url: this.url, bus: this.#bus.kind, datacenter: config.datacenter, version: VERSION };
    log.info(fields, 'instance: ready');
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
   * Drains, then stops; an instance that is not live yet stops immediately. Repeating it is
   * harmless.
   */
  drain(reason: string): void {
    this.#core.drain(reason);
  }

  stop(): Promise<void> {
    return this.#subsystemHost.stop();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  #openMainDatabase(): PostgresDatabase {
    const statements = this.#metrics.histogram(
      'database_statement_seconds',
      'Time of statements and transactions of requests and tasks, including the wait for a connection',
      { buckets: STATEMENT_SECONDS },
    );
    const maxConnections = this.#deps.config.databasePoolSize;
    return this.#openDatabase('cnapi', { maxConnections, onDone: (seconds) => statements.observe(seconds) });
  }

  #openDatabases(): CoreDatabases {
    return {
      main: this.#database,
      arrivals: this.#openDatabase('cnapi arrivals', { maxConnections: ARRIVAL_CONNECTIONS }),
      beats: this.#openDatabase('cnapi beat', SHORT),
      sessionLosses: this.#openDatabase('cnapi session losses', SHORT),
      legacyHeartbeats: this.#openDatabase('cnapi legacy heartbeats', SHORT),
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

  #createListener(limits: CallerLimits): HttpListener {
    const { config, clock, random, log } = this.#deps;
    return new HttpListener({
      config,
      version: VERSION,
      metrics: new RequestMetrics(this.#metrics),
      clock,
      random,
      log,
      certificates: this.#certificates,
      limits,
      pipeline: new RequestPipeline({
        authenticator: this.#authenticator,
        audit: this.#audit,
        isDatabaseHealthy: () => this.#core.roster.membership.isDatabaseHealthy,
        signing: new ChefAuthentication({ database: this.#database }),
        log,
      }),
    });
  }

  #handlers(): Pick<Handlers, 'requireServer'> {
    return { requireServer: createServerPrecondition(this.#core.servers) };
  }

  #aboutProcess(): ProcessRouteDeps {
    const { clock, log } = this.#deps;
    const { roster, tasks, urServers, waitlist } = this.#core;
    return {
      version: VERSION,
      startedAt: isoNow(clock),
      isReady: () => this.#readiness(),
      health: () => ({
        database: roster.membership.isDatabaseHealthy,
        amqp: urServers.isOnline ?? this.#bus.isHealthy(),
      }),
      stats: () => ({ tasks: { ...tasks.stats() }, waitlist: { ...waitlist.stats() } }),
      logLevel: { get: () => log.level(), set: (level) => log.level(level) },
      metrics: () => this.#metrics.read(),
      openApi: () => openApiBytes(allContracts, VERSION),
    };
  }

  /**
   * Not ready while nothing can be written, although the instance holds its lease and its agents:
   * callers go to another instance.
   */
  #readiness(): Readiness {
    const { reasons } = this.#core.roster.readiness();
    const reason = this.#writes.failureReason;
    const all = reason === undefined || reasons.includes(reason) ? reasons : [...reasons, reason];
    return { ready: all.length === 0, reasons: all };
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
