/** What the agent link contributes to an instance. */
import type { NewServerLimiter } from '../access/new-server-limiter.ts';
import { senderGroupOf } from '../access/token.ts';
import { counter, gauge } from '../metrics/metric.ts';
import type { Subsystem, SubsystemDefinition } from '../subsystem.ts';
import type { AgentListener } from './agent-listener.ts';
import type { LinkServer } from './link-server.ts';

interface LinkParts {
  link: LinkServer;
  newServers: Pick<NewServerLimiter, 'refusalOf'>;
  /** Knows the listeners of all subsystems. */
  subsystemHost: { readonly agentListeners: readonly AgentListener[] };
}

export const linkSubsystem: SubsystemDefinition<LinkParts> = {
  open({ link, newServers, subsystemHost }): Subsystem {
    return {
      name: 'link',
      upgrades: [
        {
          name: 'AgentLink',
          path: '/agents/:server_uuid/link',
          requiredRole: 'agent',
          onArrival: (isKnown) => link.refuseArrival(isKnown),
          open(request, upgrade, actor) {
            const address = request.socket.remoteAddress ?? '';
            const refusalOfNew = () => newServers.refusalOf(actor, address, upgrade.serverUuid);
            return link.upgrade(request, { ...upgrade, group: senderGroupOf(actor, address) }, refusalOfNew);
          },
        },
      ],
      start: () => link.start(subsystemHost.agentListeners),
      disconnect: () => link.stop(),
      metrics: [
        counter(
          'link_frames_refused_total',
          'Frames of agents that were refused because they exceed a limit of the protocol',
          () => link.counters.framesRefused,
        ),
        counter(
          'link_reads_paused_total',
          "Pauses in reading from an agent's connection, because the agent had exceeded its rate",
          () => link.counters.readsPaused,
        ),
        {
          kind: 'labelled gauge',
          name: 'link_agents_by_version',
          help: 'Agents with a session, by the version that they say; beyond the 20 most frequent versions: other',
          label: 'version',
          fetch: async () => link.agentsByVersion(),
        },
        gauge(
          'link_cost_factor',
          'By how much the cost of what an agent sends beyond its share is multiplied, because all together send too much; 1 when they do not',
          () => link.costFactor,
        ),
        gauge(
          'link_unsent_bytes',
          'Bytes of frames that agents of this instance have not read yet',
          () => link.unsentBytes,
        ),
        counter(
          'link_upgrades_refused_total',
          'Requests of agents for a connection that were answered with a time to return',
          () => link.refused,
        ),
      ],
    };
  },
};
