/**
 * A listener on a free port over a real database, with fakes of roster and tasks that answer as a
 * test says.
 */
import { connect } from 'node:net';
import { Authenticator, type AuthenticatorConfig } from '../../../lib/control/access/authenticator.ts';
import { NewServerLimiter } from '../../../lib/control/access/new-server-limiter.ts';
import { tokenRoutes } from '../../../lib/control/access/routes/token-routes.ts';
import { TokenAuthenticator } from '../../../lib/control/access/token-authenticator.ts';
import { Tokens } from '../../../lib/control/access/tokens.ts';
import { noderoleRoutes } from '../../../lib/control/annealer/routes/noderole-routes.ts';
import { AuditLog } from '../../../lib/control/audit/audit-log.ts';
import { auditRoutes } from '../../../lib/control/audit/routes/audit-routes.ts';
import { eventRoutes } from '../../../lib/control/events/routes/event-routes.ts';
import { CallerLimits, type CallerLimitsConfig } from '../../../lib/control/http/limits/caller-limits.ts';
import type { Certificates } from '../../../lib/control/http/listener/certificates.ts';
import { HttpListener, type ListenerDeps } from '../../../lib/control/http/listener/listener.ts';
import { RequestMetrics } from '../../../lib/control/http/listener/request-metrics.ts';
import { RequestPipeline } from '../../../lib/control/http/listener/request-pipeline.ts';
import type { RequestSigning } from '../../../lib/control/http/listener/request-signing.ts';
import type { Route } from '../../../lib/control/http/route.ts';
import { processRoutes } from '../../../lib/control/http/routes/process-routes.ts';
import { serverImageRoutes } from '../../../lib/control/images/routes/server-image-routes.ts';
import { legacyAgentRoutes } from '../../../lib/control/legacy/routes/legacy-agent-routes.ts';
import { Metrics } from '../../../lib/control/metrics/metrics.ts';
import { packageRoutes } from '../../../lib/control/packages/routes/package-routes.ts';
import { placementRoutes } from '../../../lib/control/placement/routes/placement-routes.ts';
import { pushEventRoutes } from '../../../lib/control/push/routes/push-event-routes.ts';
import { pushJobRoutes } from '../../../lib/control/push/routes/push-job-routes.ts';
import { pushNodeRoutes } from '../../../lib/control/push/routes/push-node-routes.ts';
import { pushScheduleRoutes } from '../../../lib/control/push/schedules/routes/schedule-routes.ts';
import { instanceRoutes } from '../../../lib/control/roster/routes/instance-routes.ts';
import { bootRoutes } from '../../../lib/control/servers/routes/boot-routes.ts';
import { createServerPrecondition } from '../../../lib/control/servers/routes/server-precondition.ts';
import { serverRoutes } from '../../../lib/control/servers/routes/server-routes.ts';
import { Servers } from '../../../lib/control/servers/servers.ts';
import { serversSubsystem } from '../../../lib/control/servers/subsystem.ts';
import { streamRoutes } from '../../../lib/control/streams/routes/stream-routes.ts';
import type { SubsystemDefinition } from '../../../lib/control/subsystem.ts';
import { serverTaskRoutes } from '../../../lib/control/tasks/routes/server-task-routes.ts';
import { taskRoutes } from '../../../lib/control/tasks/routes/task-routes.ts';
import { tasksSubsystem } from '../../../lib/control/tasks/subsystem.ts';
import type { TaskStats } from '../../../lib/control/tasks/tasks.ts';
import { vmRoutes } from '../../../lib/control/vms/routes/vm-routes.ts';
import { VmRegistry } from '../../../lib/control/vms/vm-registry.ts';
import { ticketRoutes } from '../../../lib/control/waitlist/routes/ticket-routes.ts';
import { provisionRoutes } from '../../../lib/control/workflows/routes/provision-routes.ts';
import { setupRoutes } from '../../../lib/control/workflows/routes/setup-routes.ts';
import { workflowRoutes } from '../../../lib/control/workflows/routes/workflow-routes.ts';
import { zfsRoutes } from '../../../lib/control/zfs/routes/zfs-routes.ts';
import type { CnapiError } from '../../../lib/platform/errors.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import { BucketStore } from '../../../lib/platform/moray/bucket-store.ts';
import type { Queryable } from '../../../lib/platform/postgres/database.ts';
import { systemRandom } from '../../../lib/platform/random.ts';
import { type Clock, systemClock } from '../../../lib/platform/time/clock.ts';
import { openApiBytes } from '../../../lib/protocol/api/contract/openapi.ts';
import { contractList } from '../../../lib/protocol/api/contracts.ts';
import { checkAnswer } from '../../support/contracts.ts';
import { migrationsOf } from '../../support/migrations-of.ts';
import { type FreshDatabase, freshDatabase, type Teardown } from '../../support/postgres.ts';
import { recordingLogger } from '../../support/recording-logger.ts';
import {
  bootWithoutPlatforms,
  FakeLegacyAgents,
  FakeRoster,
  FakeTasks,
  noAnnealer,
  noPlacement,
  noPushJobs,
  noSchedules,
  noStreams,
  noWorkflowJobs,
} from './stand-ins.ts';

export const SERVER = '564d5b45-3a8c-4c1f-9d0a-0123456789ab';
export const UNKNOWN_UUID = '00000000-0000-4000-8000-00000000dead';

export interface Answer {
  status: number;
  headers: Headers;
  text: string;
  // biome-ignore lint/suspicious/noExplicitAny: what a route answers is what its test is about
  body: any;
}

export interface Api {
  url: string;
  port: number;
  listener: HttpListener;
  limits: CallerLimits;
  servers: Servers;
  tasks: FakeTasks;
  roster: FakeRoster;
  legacyAgents: FakeLegacyAgents;
  health: { database: boolean; amqp: boolean };
  database: FreshDatabase;
  /** Log records at info and above. */
  logged: Record<string, unknown>[];
  upgrades: { serverUuid: string }[];
  /** For each agent that asked for its link, whether it was known. */
  arrivals: boolean[];
  call(method: string, path: string, body?: unknown, headers?: Record<string, string>): Promise<Answer>;
  /** Adds a server with this sysinfo and a roster row with this status. */
  addServer(uuid: string, options?: { status?: string; sysinfo?: Record<string, unknown> }): Promise<void>;
}

const allRoutes = [
  serverRoutes,
  bootRoutes,
  legacyAgentRoutes,
  serverTaskRoutes,
  streamRoutes,
  taskRoutes,
  vmRoutes,
  serverImageRoutes,
  packageRoutes,
  workflowRoutes,
  provisionRoutes,
  setupRoutes,
  noderoleRoutes,
  zfsRoutes,
  placementRoutes,
  ticketRoutes,
  pushJobRoutes,
  pushEventRoutes,
  pushNodeRoutes,
  pushScheduleRoutes,
  instanceRoutes,
  processRoutes,
  tokenRoutes,
  auditRoutes,
  eventRoutes,
];

type Needs<Routes> = Routes extends (parts: infer Parts) => unknown ? (parts: Parts) => void : never;
/** What the routes need. */
export type Parts = Needs<(typeof allRoutes)[number]> extends (parts: infer All) => void ? All : never;

export interface ApiOptions {
  config?: Partial<ListenerDeps['config'] & AuthenticatorConfig & CallerLimitsConfig>;
  parts?: Partial<Parts>;
  /** Served beside the routes of the API. */
  routes?: (parts: Parts) => Route[];
  /** The link's answer to each agent that connects; by default it accepts all. */
  upgradeRefusal?: CnapiError;
  certificates?: Certificates;
  /** For the listener and for the limits of requests; by default the system's. */
  clock?: Clock;
  /** The database through which tokens are looked up. */
  accessDatabase?: (database: Queryable) => Queryable;
}

/** None of these routes takes signed requests. */
const NO_SIGNING: RequestSigning = {
  check: () => undefined,
  isKnown: () => false,
  authenticate: () => Promise.reject(new Error('no route takes signed requests')),
};

const OPEN_GATE: AuthenticatorConfig = {
  access: 'open',
  trustedNetworks: [],
  requestsPerSecond: 0,
  connectionsPerSource: 0,
  failedAuthenticationsPerMinute: 0,
};

const LIMITS = {
  answerMemoryMiB: 128,
  answerMemoryPerCallerMiB: 32,
  eventStreamsPerCaller: 100,
  waitsPerCaller: 1000,
  logLinesPerSource: 0,
};

export async function startApi(t: Teardown, options: ApiOptions = {}): Promise<Api> {
  const migrations = migrationsOf('moray', 'access', 'audit', 'roster', 'legacy', 'servers', 'tasks', 'vms');
  const fresh = await freshDatabase(t, { migrations });
  const { database } = fresh;
  const servers = new Servers({ database, clock: systemClock, log: silentLogger, datacenter: 'testdc' });
  await servers.start();
  const tasks = new FakeTasks(database);
  const vms = new VmRegistry({ buckets: new BucketStore({ database }), tasks, random: systemRandom });
  await vms.prepare();
  const roster = new FakeRoster();
  const legacyAgents = new FakeLegacyAgents();
  const health = { database: true, amqp: true };
  const logged: Record<string, unknown>[] = [];
  const upgrades: { serverUuid: string }[] = [];
  const arrivals: boolean[] = [];
  const build = { version: '1.0.0', node: 'v24', datacenter: 'testdc', cnapiUuid: 'i', host: 's' };
  const metrics = new Metrics({ build, clock: systemClock });
  const shown = { stats: () => ({ ...noStats, ...tasks.stats() }), recentTimes: async () => [] };
  metrics.add(metricsOf(tasksSubsystem, { tasks: shown }));
  metrics.add(metricsOf(serversSubsystem, { servers, config: {} }));
  const accessDatabase = options.accessDatabase?.(database) ?? database;
  const tokenAuthenticator = new TokenAuthenticator({
    database: accessDatabase,
    backgroundDatabase: accessDatabase,
    clock: systemClock,
    log: silentLogger,
  });
  const audit = new AuditLog({
    database,
    cnapiUuid: SERVER,
    clock: systemClock,
    random: systemRandom,
    log: silentLogger,
  });
  const authenticator = new Authenticator({
    config: { ...OPEN_GATE, ...options.config },
    clock: options.clock ?? systemClock,
    tokenAuthenticator,
  });
  tokenAuthenticator.start();
  t.teardown(() => Promise.all([tokenAuthenticator.stop(), audit.stop()]));
  let level = 30;
  const parts: Parts = {
    version: '1.2.3',
    startedAt: '2030-01-01T00:00:00.000Z',
    isReady: () => roster.readiness,
    stats: () => ({ tasks: tasks.stats(), waitlist: waitlistStats }),
    instanceLeaving: new AbortController().signal,
    servers,
    boot: bootWithoutPlatforms(database),
    tasks,
    vms,
    waitlist,
    pushJobs: noPushJobs,
    pushSchedules: noSchedules,
    workflowJobs: noWorkflowJobs,
    noderoles: noAnnealer,
    ...noPlacement,
    clock: systemClock,
    random: systemRandom,
    events: { follow: () => Promise.reject(new Error('not here')) },
    legacyAgentApi: { has: async () => false, history: async () => [], setPaused: async () => {} },
    roster,
    ...noStreams,
    cnapiUuid: SERVER,
    heartbeats: legacyAgents,
    agentSources: { heard: () => undefined, record: async () => {} },
    tokens: new Tokens({ database, random: systemRandom }),
    newServers: new NewServerLimiter({ newServersPerHour: 0, clock: systemClock }),
    audit,
    health: () => health,
    lastHeartbeat: (uuid) => (uuid === SERVER ? '2030-01-01T00:00:01.000Z' : null),
    logLevel: { get: () => level, set: (one) => (level = one) },
    metrics: () => metrics.read(),
    openApi: () => openApiBytes(contractList, '1.2.3'),
    ...options.parts,
  };
  const limits = new CallerLimits(
    { ...LIMITS, ...OPEN_GATE, ...options.config },
    { clock: systemClock, log: recordingLogger(logged) },
  );
  const listener = new HttpListener({
    config: {
      host: '127.0.0.1',
      port: 0,
      datacenter: 'testdc',
      domain: 'cnapi.test',
      maxAgents: 100,
      handshakesPerSecond: 0,
      ...options.config,
    },
    version: '1.2.3',
    limits,
    pipeline: new RequestPipeline({
      authenticator,
      audit,
      isDatabaseHealthy: () => health.database,
      signing: NO_SIGNING,
      log: recordingLogger(logged),
    }),
    metrics: new RequestMetrics(metrics),
    clock: options.clock ?? systemClock,
    random: systemRandom,
    log: recordingLogger(logged),
    certificates: options.certificates,
  });
  await listener.start({
    routes: [...allRoutes, options.routes ?? (() => [])].flatMap((routes) => routes(parts)),
    requireServer: createServerPrecondition(parts.servers),
    upgrades: [
      {
        name: 'AgentLink',
        path: '/agents/:server_uuid/link',
        requiredRole: 'agent',
        onArrival(isKnown) {
          arrivals.push(isKnown());
          return undefined;
        },
        open(_request, { socket, serverUuid }) {
          upgrades.push({ serverUuid });
          if (options.upgradeRefusal !== undefined) return options.upgradeRefusal;
          // It stays open, as a link does, until someone closes it.
          socket.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n');
          return undefined;
        },
      },
    ],
  });
  t.teardown(() => listener.stop());
  const { url } = listener;
  return {
    url,
    port: Number(new URL(url).port),
    listener,
    limits,
    servers,
    tasks,
    roster,
    legacyAgents,
    health,
    database: fresh,
    logged,
    upgrades,
    arrivals,
    call: (method, path, body, headers) => call(url, method, path, body, headers),
    async addServer(uuid, { status = 'running', sysinfo = {} } = {}) {
      await servers.recordSysinfo(uuid, { UUID: uuid, Hostname: `host-${uuid.slice(-4)}`, ...sysinfo });
      await setStatus(fresh, uuid, status);
    },
  };
}

/** `parts`: those that its metrics need. */
const metricsOf = ({ open }: SubsystemDefinition<never>, parts: object) => open?.(parts as never).metrics ?? [];

export async function setStatus({ database }: FreshDatabase, uuid: string, status: string, epoch = 1): Promise<void> {
  await database.query(
    `insert into cnapi_roster_authority (server_uuid, epoch, status, reason, since) values ($1, $3, $2, 'connected', cnapi_now())
     on conflict (server_uuid) do update set status = excluded.status, epoch = excluded.epoch`,
    [uuid, status, epoch],
  );
}

/** One request by fetch. An object as body is sent as JSON, a string unchanged. */
export async function call(
  url: string,
  method: string,
  path: string,
  body?: unknown,
  headers: Record<string, string> = {},
): Promise<Answer> {
  const isText = typeof body === 'string';
  const content = body === undefined ? {} : { body: isText ? body : JSON.stringify(body) };
  const type = body === undefined || isText ? {} : { 'content-type': 'application/json' };
  const response = await fetch(url + path, { method, headers: { ...type, ...headers }, ...content });
  const text = await response.text();
  const contentType = response.headers.get('content-type');
  checkAnswer(method, path, { status: response.status, contentType, text });
  const isJson = contentType === 'application/json';
  return { status: response.status, headers: response.headers, text, body: isJson ? JSON.parse(text) : undefined };
}

/** Writes bytes to a socket and reads until the other side closes it, or until `enough` matches. */
export function raw(port: number, bytes: string, enough?: RegExp): Promise<string> {
  return new Promise((resolve, reject) => {
    let seen = '';
    const socket = connect(port, '127.0.0.1', () => socket.write(bytes));
    socket.setEncoding('utf8');
    socket.on('data', (chunk) => {
      seen += chunk;
      if (enough?.test(seen)) socket.destroy();
    });
    socket.on('close', () => resolve(seen));
    // The connection of a refused sender may be reset while it still writes.
    socket.on('error', (error: NodeJS.ErrnoException) =>
      ['ECONNRESET', 'EPIPE'].includes(error.code ?? '') ? undefined : reject(error),
    );
  });
}

const waitlistStats = { waits: 3, expired: 2, defects: 1, refusedCreates: 0 };
/** Routes of tickets are tested over whole instances. */
const waitlist = {} as Parts['waitlist'];

const noStats: TaskStats = {
  postsInFlight: 0,
  posted: 0,
  postsLost: 0,
  waits: 0,
  follows: 0,
  wanted: 0,
  inventories: 0,
  reportBytes: 0,
  droppedEvents: 0,
  refusedEnds: 0,
  refusedCreates: 0,
  sent: 6,
  resent: 0,
  swept: 0,
};
