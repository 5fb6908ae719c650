/**
 * What the routes need of the rest of the instance. `lib/control/app.ts` supplies it; tests use
 * substitutes.
 */
import type { NewServers } from '../access/new-servers.ts';
import type { Tokens } from '../access/tokens.ts';
import type { AuditLog } from '../audit/audit-log.ts';
import type { Events } from '../events/events.ts';
import type { AgentSources } from '../legacy/agent-sources.ts';
import type { LegacyAgentApi } from '../legacy/legacy-agent-api.ts';
import type { InstanceView } from '../roster/coordinator.ts';
import type { RemovedServer } from '../servers/server-store.ts';
import type { Servers } from '../servers/servers.ts';
import type { Tasks } from '../tasks/tasks.ts';
import type { Waitlist } from '../waitlist/waitlist.ts';

interface RosterService {
  instances(): Promise<InstanceView[]>;
  /**
   * Makes the instance leave; returns it as it was then. @throws InstanceNotFoundError,
   * LastInstanceError
   */
  drain(cnapiUuid: string): Promise<InstanceView>;
  /** Newest first. */
  statusHistory(serverUuid: string, page: { limit: number; offset: number }): Promise<object[]>;
  /** Of this instance. */
  cnapiUuid: string;
  /** A server was removed: closes its session on any instance. */
  serverRemoved(serverUuid: string, removed: RemovedServer): void;
  /** Whether this instance should receive requests, and if not, why. */
  isReady(): { ready: boolean; reasons: string[] };
}

/** Agents that post to any instance. */
interface LegacyAgentsService {
  /** One posted a heartbeat; the server need not exist. */
  heartbeat(serverUuid: string): void;
  /** An agent's post created the server: it is `running` from now on. */
  created(serverUuid: string): Promise<void>;
}

export interface Services {
  version: string;
  /** ISO 8601, constant for the life of the process. */
  startedAt: string;
  servers: Servers;
  tasks: Pick<Tasks, 'create' | 'known' | 'get' | 'wait' | 'cancel' | 'follow' | 'history' | 'list'> & {
    /** For /diagnostics. */
    stats(): object;
  };
  waitlist: Pick<
    Waitlist,
    'create' | 'get' | 'list' | 'listOpen' | 'queues' | 'wait' | 'release' | 'renew' | 'delete' | 'deleteAll' | 'stats'
  >;
  events: Pick<Events, 'follow'>;
  legacyAgentApi: Pick<LegacyAgentApi, 'has' | 'history' | 'setPaused'>;
  roster: RosterService;
  legacyAgents: LegacyAgentsService;
  agentSources: Pick<AgentSources, 'heard' | 'record'>;
  newServers: Pick<NewServers, 'refusalOf'>;
  tokens: Pick<Tokens, 'create' | 'list' | 'revoke'>;
  audit: Pick<AuditLog, 'list'>;
  /** Aborts when this instance leaves and every wait must be answered, each in its own way. */
  waitsOver: AbortSignal;
  /** The health of this instance's dependencies, as it sees them now. */
  health(): { database: boolean; bus: boolean };
  /** When bytes last arrived here from the server over its session, ISO 8601; null if none did. */
  lastHeartbeat?(serverUuid: string): string | null;
  /** For every logger of this process; bunyan's numbers. */
  logLevel: { get(): number; set(level: number): void };
  /** In Prometheus text format. */
  metrics(): Promise<{ contentType: string; content: string }>;
  /** The OpenAPI document of all routes, as JSON. */
  openApi(): string;
}
