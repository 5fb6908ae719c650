/** What the routes need of the rest of the instance; `lib/app.ts` fills it in, tests put stand-ins where there is no fleet. */
import type { Tokens } from '../access/tokens.ts';
import type { AuditLog } from '../audit/audit-log.ts';
import type { Events } from '../events/events.ts';
import type { OldAgentCaller } from '../old-agents/caller.ts';
import type { InstanceView } from '../roster/coordinator.ts';
import type { Servers } from '../servers/servers.ts';
import type { Tasks } from '../tasks/tasks.ts';
import type { Waitlist } from '../waitlist/waitlist.ts';

export interface RosterService {
  instances(): Promise<InstanceView[]>;
  /** The instance is to leave; as it was then. @throws InstanceNotFoundError, LastInstanceError */
  drain(cnapiUuid: string): Promise<InstanceView>;
  /** Newest first. */
  statusHistory(serverUuid: string, page: { limit: number; offset: number }): Promise<object[]>;
  /** Closes a live session, wherever it is, and keeps the epoch. */
  removeServer(serverUuid: string): Promise<void>;
  /** Whether this instance should be sent requests, and if not, why. */
  isReady(): { ready: boolean; reasons: string[] };
}

/** Agents that post to whichever instance they come to. */
export interface OldAgentsService {
  /** One posted a heartbeat; the server need not exist. */
  heartbeat(serverUuid: string): void;
  /** Its post made the server: it is `running` from now on. */
  created(serverUuid: string): Promise<void>;
}

export interface Services {
  version: string;
  /** ISO 8601, constant for the life of the process. */
  startedAt: string;
  servers: Servers;
  tasks: Pick<Tasks, 'create' | 'known' | 'get' | 'wait' | 'cancel' | 'follow' | 'history'> & {
    /** For /diagnostics. */
    stats(): object;
  };
  waitlist: Pick<
    Waitlist,
    'create' | 'get' | 'list' | 'listOpen' | 'queues' | 'wait' | 'release' | 'renew' | 'delete' | 'deleteAll' | 'stats'
  >;
  events: Pick<Events, 'follow'>;
  oldAgentCaller: Pick<OldAgentCaller, 'has' | 'history' | 'setPaused'>;
  roster: RosterService;
  oldAgents: OldAgentsService;
  tokens: Pick<Tokens, 'create' | 'list' | 'revoke'>;
  audit: Pick<AuditLog, 'list'>;
  /** Aborts when this instance leaves and every wait is to be answered, each in its own way. */
  waitsOver: AbortSignal;
  /** What this instance stands on, as it sees it now. */
  health(): { database: boolean; bus: boolean };
  /** When this instance last heard of the server over its session, ISO 8601, if it did. */
  lastHeartbeat?(serverUuid: string): string | null;
  /** Of every logger of this process; bunyan's numbers. */
  logLevel: { get(): number; set(level: number): void };
  /** In Prometheus text format. */
  metrics(): Promise<{ contentType: string; content: string }>;
  /** The OpenAPI document of all routes, as JSON. */
  openApi(): string;
}
