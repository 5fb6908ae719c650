/** What the agent link contributes to an instance. */
import { counter } from '../metrics/metric.ts';
import type { Subsystem } from '../subsystem.ts';
import type { LinkServer } from './link-server.ts';

export function linkSubsystem(link: LinkServer): Subsystem {
  return {
    name: 'link',
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
      counter(
        'link_upgrades_refused_total',
        'Requests of agents for a connection that were answered with a time to return',
        () => link.refused,
      ),
    ],
  };
}
