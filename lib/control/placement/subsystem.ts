/** What placement contributes to an instance. */
import { readMigrations } from '../../platform/postgres/migration-files.ts';
import type { Clock } from '../../platform/time/clock.ts';
import { counter } from '../metrics/metric.ts';
import type { Servers } from '../servers/servers.ts';
import type { Subsystem, SubsystemDefinition } from '../subsystem.ts';
import type { Allocator } from './allocator.ts';
import { placementRoutes } from './routes/placement-routes.ts';
import type { PlacementSettings } from './settings.ts';

interface PlacementParts {
  clock: Clock;
  allocator: Allocator;
  servers: Servers;
  config: PlacementSettings;
}

const SECONDS = [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5];
/** Times that are kept until the metrics are read. */
const MAX_TIMES = 10_000;

export const placementSubsystem: SubsystemDefinition<PlacementParts> = {
  migrations: readMigrations('placement', import.meta.dirname),
  open({ clock, allocator, servers, config }): Subsystem {
    let times: number[] = [];
    const onAllocated = (seconds: number) => {
      if (times.length < MAX_TIMES) times.push(seconds);
    };
    return {
      name: 'placement',
      routes: placementRoutes({ allocator, servers, config, onAllocated, clock }),
      chores: [{ name: 'expired placement claims', batch: () => allocator.deleteExpired() }],
      metrics: [
        counter(
          'placement_allocations_total',
          'Allocations that this instance answered with a server, also repeated ones',
          () => allocator.stats.claimed,
        ),
        counter(
          'placement_refusals_total',
          'VMs for which this instance found no server',
          () => allocator.stats.refused,
        ),
        counter(
          'placement_lost_claims_total',
          'Chosen servers that could not be claimed: other requests took their room first, or they were deleted',
          () => allocator.stats.lostClaims,
        ),
        counter(
          'placement_claim_quota_refusals_total',
          'Allocations refused because their caller held room for as many VMs as it may',
          () => allocator.stats.overQuota,
        ),
        {
          kind: 'histograms',
          histograms: {
            placement_seconds: { help: 'Time of an allocation at this instance', buckets: SECONDS },
          },
          take: async () => {
            const taken = times;
            times = [];
            return { placement_seconds: taken };
          },
        },
      ],
    };
  },
};
