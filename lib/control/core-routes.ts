/**
 * The routes over the parts of a core: each noun's, with what it needs. `app.ts` adds those that need
 * more than a core. The simulation uses the same routes.
 */
import type { Clock } from '../platform/clock.ts';
import type { NewServers } from './access/new-servers.ts';
import type { Core } from './core.ts';
import { eventRoutes } from './events/event-routes.ts';
import type { Route } from './http/route.ts';
import { legacyAgentRoutes } from './legacy/legacy-agent-routes.ts';
import { instanceRoutes } from './roster/instance-routes.ts';
import { serverRoutes } from './servers/routes/server-routes.ts';
import { serverTaskRoutes } from './tasks/routes/server-task-routes.ts';
import { taskRoutes } from './tasks/routes/task-routes.ts';
import { ticketRoutes } from './waitlist/routes/ticket-routes.ts';

interface CoreRouteDeps {
  cnapiUuid: string;
  newServers: Pick<NewServers, 'refusalOf'>;
  /** Aborts when this instance leaves and every open wait must be answered. */
  instanceLeaving: AbortSignal;
  clock: Clock;
  /** The nouns of documents that tell of their changes. */
  documentKinds?: readonly string[];
}

export function coreRoutes(core: Core, deps: CoreRouteDeps): Route[] {
  const { cnapiUuid, newServers, instanceLeaving, clock, documentKinds = [] } = deps;
  const { roster, servers, tasks, waitlist, events, legacyAgentApi, heartbeatMonitor, agentSources } = core;
  const lastHeartbeat = (serverUuid: string) => {
    const session = roster.sessions.get(serverUuid);
    return session ? new Date(clock.wallTime() - (clock.now() - session.heardAt)).toISOString() : null;
  };
  return [
    ...serverRoutes({ servers, roster, cnapiUuid, lastHeartbeat }),
    ...legacyAgentRoutes({ servers, heartbeats: heartbeatMonitor, agentSources, newServers }),
    ...serverTaskRoutes({ tasks, servers, legacyAgentApi, instanceLeaving }),
    ...taskRoutes({ tasks, instanceLeaving }),
    ...ticketRoutes({ waitlist, instanceLeaving }),
    ...instanceRoutes({ roster }),
    ...eventRoutes({ events, documentKinds }),
  ];
}
