/**
 * The drivers of an instance that several subsystems use: roster, tasks, duties, waitlist, events,
 * servers, the agent link, legacy agents, servers that speak Ur, push jobs and organizations. The
 * caller gives the databases, the bus and the listener (`Ingress`): `app.ts` passes real ones; the
 * simulation passes its own and runs these drivers unchanged on a virtual clock. The subsystems
 * (`subsystem-list.ts`) take what they need from the fields; `subsystem-host.ts` starts, connects
 * and stops them. A driver that only one subsystem uses is created in its `open`.
 */
import type { Bus } from '../platform/bus/bus.ts';
import type { Logger } from '../platform/log.ts';
import { BucketStore } from '../platform/moray/bucket-store.ts';
import type { Database } from '../platform/postgres/database.ts';
import type { Random } from '../platform/random.ts';
import type { Clock } from '../platform/time/clock.ts';
import type { EventLoop } from '../platform/time/event-loop.ts';
import { VERSION } from '../platform/version.ts';
import type { NewServerLimiter } from './access/new-server-limiter.ts';
import type { Config } from './config.ts';
import { DutyKeeper } from './duty/duty-keeper.ts';
import { Events } from './events/events.ts';
import { AgentSources } from './legacy/agent-sources.ts';
import { HeartbeatMonitor } from './legacy/heartbeat-monitor.ts';
import { LegacyAgentApi } from './legacy/legacy-agent-api.ts';
import { LegacyDispatch } from './legacy/legacy-dispatch.ts';
import { PostRouter } from './legacy/post-router.ts';
import { callableNetworks } from './legacy/settings.ts';
import { InventoriedSessions } from './link/inventoried-sessions.ts';
import { LinkServer } from './link/link-server.ts';
import { UnsentFrames } from './link/unsent-frames.ts';
import { Organizations } from './organizations/organizations.ts';
import { Allocator } from './placement/allocator.ts';
import { PushJobs } from './push/push-jobs.ts';
import type { InstanceIdentity } from './roster/membership/instance-store.ts';
import { Roster } from './roster/roster.ts';
import { Servers } from './servers/servers.ts';
import { CallerStreams } from './streams/caller-streams.ts';
import type { SubsystemHost } from './subsystem-host.ts';
import { Tasks } from './tasks/tasks.ts';
import { UrServers } from './ur/ur-servers.ts';
import { Waitlist } from './waitlist/waitlist.ts';

/**
 * Databases by their use; all but the first two have one connection and short timeouts. `main` is
 * for everything except the others.
 */
export interface CoreDatabases {
  main: Database;
  /** Runs the statements that admit agents. */
  arrivals: Database;
  beats: Database;
  sessionLosses: Database;
  legacyHeartbeats: Database;
}

/** The listener for callers and agents. */
interface Ingress {
  /** The URL of the instance; known once it has started. */
  readonly url: string;
  /** Whether the log may get another line about this address. */
  mayLog(address: string): boolean;
}

export interface CoreDeps {
  config: Config & { cnapiUuid: string };
  log: Logger;
  clock: Clock;
  eventLoop: EventLoop;
  random: Random;
  databases: CoreDatabases;
  bus: Bus;
  ingress: Ingress;
  /** Who may register new servers. */
  newServers: Pick<NewServerLimiter, 'refusalOf'>;
  subsystemHost: SubsystemHost;
}

/** Who creates servers by messages of the AMQP broker: one caller, wherever they come from. */
const UR = { name: 'ur', roles: [], tokenUuid: 'ur' };
const DEFAULT_PORTS: Readonly<Record<string, number>> = { 'http:': 80, 'https:': 443 };

export class Core {
  readonly config: CoreDeps['config'];
  readonly cnapiUuid: string;
  readonly log: Logger;
  readonly clock: Clock;
  readonly random: Random;
  readonly database: Database;
  readonly buckets: BucketStore;
  readonly bus: Bus;
  readonly newServers: CoreDeps['newServers'];
  readonly subsystemHost: SubsystemHost;
  /** Aborts when this instance leaves and every open wait must be answered. */
  readonly instanceLeaving: AbortSignal;
  readonly roster: Roster;
  readonly tasks: Tasks;
  readonly duties: DutyKeeper;
  readonly waitlist: Waitlist;
  readonly events: Events;
  readonly servers: Servers;
  readonly heartbeatMonitor: HeartbeatMonitor;
  readonly agentSources: AgentSources;
  readonly legacyAgentApi: LegacyAgentApi;
  readonly urServers: UrServers;
  readonly link: LinkServer;
  readonly streams: CallerStreams;
  readonly pushJobs: PushJobs;
  readonly organizations: Organizations;
  readonly allocator: Allocator;

  constructor(deps: CoreDeps) {
    const { config, log, clock, random, bus, databases, subsystemHost } = deps;
    const { cnapiUuid } = config;
    const database = databases.main;
    this.config = config;
    this.cnapiUuid = cnapiUuid;
    this.log = log;
    this.clock = clock;
    this.random = random;
    this.database = database;
    this.buckets = new BucketStore({ database });
    this.bus = bus;
    this.newServers = deps.newServers;
    this.subsystemHost = subsystemHost;
    this.instanceLeaving = subsystemHost.instanceLeaving;
    const ports = { clock, random, log };
    const common = { ...ports, database, bus, config };
    this.roster = new Roster({
      ...common,
      cnapiUuid,
      eventLoop: deps.eventLoop,
      beatDatabase: databases.beats,
      sessionLossDatabase: databases.sessionLosses,
      arrivalDatabase: databases.arrivals,
      identity: () => identityOf(config, deps.ingress.url),
      instance: subsystemHost,
    });
    const unsent = new UnsentFrames({ clock, healthyTimer: this.roster.healthyTimer });
    const inventoriedSessions = new InventoriedSessions({
      sessions: this.roster.sessions,
      unsent,
      run: () => this.roster.membership.run,
    });
    this.waitlist = new Waitlist(common);
    this.events = new Events(common);
    this.servers = new Servers({
      database,
      arrivalDatabase: databases.arrivals,
      clock,
      log,
      datacenter: config.datacenter,
    });
    this.heartbeatMonitor = new HeartbeatMonitor({
      database: databases.legacyHeartbeats,
      cnapiUuid,
      times: config,
      healthyTimer: this.roster.healthyTimer,
      mayMarkOthersUnknown: () => this.roster.membership.mayMarkOthersUnknown,
      clock,
      log,
    });
    this.legacyAgentApi = new LegacyAgentApi({
      database,
      servers: this.servers,
      clock,
      version: VERSION,
      networks: callableNetworks(config),
      // Where tokens are required, a proxy on this machine may forward all requests; then loopback
      // proves nothing.
      allowLoopback: config.access === 'open',
      log,
    });
    this.urServers = new UrServers({
      ...common,
      cnapiUuid,
      servers: this.servers,
      refusalOf: (serverUuid) => deps.newServers.refusalOf(UR, UR.name, serverUuid),
      healthyTimer: this.roster.healthyTimer,
      mayMarkOthersUnknown: () => this.roster.membership.mayMarkOthersUnknown,
    });
    this.agentSources = new AgentSources({ database, clock, log });
    const agents = new PostRouter({
      database,
      legacyAgentApi: this.legacyAgentApi,
      urServers: this.urServers.isOnline === undefined ? undefined : this.urServers,
      clock,
    });
    this.tasks = new Tasks({
      ...common,
      sessions: inventoriedSessions,
      createPostDispatch: (outcomes) =>
        new LegacyDispatch({
          ...common,
          ...outcomes,
          agents,
          run: () => this.roster.membership.run,
        }),
    });
    this.duties = new DutyKeeper({
      ...common,
      run: () => this.roster.membership.run,
      isHealthy: () => this.roster.membership.unhealthyReason === undefined,
    });
    this.link = new LinkServer({
      ...common,
      cnapiUuid,
      roster: this.roster,
      unsent,
      servers: this.servers,
      mayLog: (address) => deps.ingress.mayLog(address),
    });
    this.streams = new CallerStreams({ cnapiUuid, clock, random });
    this.pushJobs = new PushJobs({
      ...common,
      buckets: this.buckets,
      session: (serverUuid) => inventoriedSessions.get(serverUuid),
      unsent,
      tasks: this.tasks,
      offerDuties: () => this.duties.offer(),
      waitlist: this.waitlist,
    });
    this.organizations = new Organizations({ database, random });
    this.allocator = new Allocator({ database, random, config });
  }

  /**
   * Drains, then stops; an instance that is not live yet stops immediately. Repeating it is
   * harmless.
   */
  drain(reason: string): void {
    if (this.subsystemHost.isLive) this.roster.drainer.begin(reason);
    else void this.subsystemHost.stop();
  }
}

function identityOf({ cnapiUuid, host, advertiseHost }: CoreDeps['config'], ownUrl: string): InstanceIdentity {
  const url = new URL(ownUrl);
  const port = Number(url.port || DEFAULT_PORTS[url.protocol]);
  if (advertiseHost !== undefined) url.hostname = advertiseHost.includes(':') ? `[${advertiseHost}]` : advertiseHost;
  return { cnapiUuid, url: url.origin, host: advertiseHost ?? host, port, pid: process.pid, version: VERSION };
}
