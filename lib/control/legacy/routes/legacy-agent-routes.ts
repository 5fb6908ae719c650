/** Answers the posts of agents without a link (lib/protocol/api/legacy-agents.ts). */
import { legacyAgentContracts } from '../../../protocol/api/legacy-agents.ts';
import type { NewServerLimiter } from '../../access/new-server-limiter.ts';
import { bind, empty, type Route } from '../../http/route.ts';
import { ServerNotFoundError, type Servers } from '../../servers/servers.ts';
import type { AgentSources } from '../agent-sources.ts';
import type { HeartbeatMonitor } from '../heartbeat-monitor.ts';

export interface LegacyAgentRouteDeps {
  servers: Pick<Servers, 'recordSysinfo' | 'recordReport'>;
  heartbeats: Pick<HeartbeatMonitor, 'heartbeat' | 'created'>;
  agentSources: Pick<AgentSources, 'heard' | 'record'>;
  newServers: Pick<NewServerLimiter, 'refusalOf'>;
}

export function legacyAgentRoutes({ servers, heartbeats, agentSources, newServers }: LegacyAgentRouteDeps): Route[] {
  return bind(
    legacyAgentContracts,
    {
      async RegisterSysinfo({ params, actor, source }) {
        const isNew = await servers.recordSysinfo(params.server_uuid, params.sysinfo, undefined, (before) => {
          const refusal = before === undefined && newServers.refusalOf(actor, source, params.server_uuid);
          if (refusal) throw refusal;
        });
        if (isNew) await heartbeats.created(params.server_uuid);
        await agentSources.record(params.server_uuid, source);
        return empty(200);
      },
      PostHeartbeat({ params, source }) {
        heartbeats.heartbeat(params.server_uuid);
        agentSources.heard(params.server_uuid, source);
        return empty(204);
      },
      async PostStatus({ params, rawParams }) {
        if (!(await servers.recordReport(params.server_uuid, rawParams)))
          throw new ServerNotFoundError(params.server_uuid);
        return empty(204);
      },
    },
    { PostHeartbeat: { quiet: true }, PostStatus: { quiet: true } },
  );
}
