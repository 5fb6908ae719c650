/** What streams contribute to an instance. */
import { callerKey } from '../access/token.ts';
import { counter, gauge } from '../metrics/metric.ts';
import type { Roster } from '../roster/roster.ts';
import type { Subsystem, SubsystemDefinition } from '../subsystem.ts';
import type { Tasks } from '../tasks/tasks.ts';
import type { CallerStreams } from './caller-streams.ts';
import { streamRoutes } from './routes/stream-routes.ts';

interface StreamParts {
  streams: CallerStreams;
  roster: Pick<Roster, 'addresses'>;
  tasks: Pick<Tasks, 'create'>;
}

export const streamsSubsystem: SubsystemDefinition<StreamParts> = {
  open({ streams, roster, tasks }): Subsystem {
    return {
      name: 'streams',
      routes: streamRoutes({ tasks, addresses: () => roster.addresses() }),
      upgrades: [
        {
          name: 'OpenStream',
          path: '/servers/:server_uuid/stream',
          requiredRole: 'operator',
          open(request, upgrade, actor) {
            const owner = callerKey(actor, request.socket.remoteAddress ?? '');
            return streams.open(request, { ...upgrade, owner });
          },
        },
        {
          name: 'JoinStream',
          path: '/agents/:server_uuid/streams/:stream',
          requiredRole: 'agent',
          open: (request, upgrade) => streams.join(request, { ...upgrade, name: String(upgrade.path.stream) }),
        },
      ],
      beginDrain: () => streams.beginDrain(),
      endDrain: () => streams.end(),
      beginStop: () => streams.end(),
      disconnect: () => streams.stop(),
      metrics: [
        gauge('streams_open', 'Streams of callers of this instance to agents that are open', () => streams.count),
        counter('streams_total', 'Streams that callers have opened at this instance', () => streams.opened),
      ],
    };
  },
};
