/** What servers contribute to an instance. */

import type { Logger } from '../../platform/log.ts';
import type { BucketStore } from '../../platform/moray/bucket-store.ts';
import { parseBrokerAddress } from '../../platform/network/broker-address.ts';
import { readMigrations } from '../../platform/postgres/migration-files.ts';
import type { Clock } from '../../platform/time/clock.ts';
import { counter } from '../metrics/metric.ts';
import type { Subsystem, SubsystemDefinition } from '../subsystem.ts';
import { Boot } from './boot/boot.ts';
import { PlatformNames } from './boot/platform-names.ts';
import { bootRoutes } from './routes/boot-routes.ts';
import { serverRoutes } from './routes/server-routes.ts';
import type { Servers } from './servers.ts';

interface ServersSubsystemDeps {
  servers: Servers;
  roster: Parameters<typeof serverRoutes>[0]['roster'] & {
    sessions: { get(serverUuid: string): { heardAt: number } | undefined };
  };
  cnapiUuid: string;
  clock: Clock;
  buckets: BucketStore;
  log: Logger;
  config: Parameters<typeof serverRoutes>[0]['config'] & { rabbitmq?: string | undefined; smtEnabled: boolean };
}

export const serversSubsystem: SubsystemDefinition<ServersSubsystemDeps> = {
  migrations: readMigrations('servers', import.meta.dirname),
  open({ servers, roster, cnapiUuid, clock, buckets, log, config }): Subsystem {
    const lastHeartbeat = (serverUuid: string) => {
      const session = roster.sessions.get(serverUuid);
      return session ? new Date(clock.wallTime() - (clock.now() - session.heardAt)).toISOString() : null;
    };
    const { rabbitmq, smtEnabled } = config;
    const broker = rabbitmq === undefined ? undefined : parseBrokerAddress(rabbitmq);
    const platforms = new PlatformNames({ buckets });
    const boot = new Boot({ buckets, platforms, config: { smtEnabled, broker }, clock, log });
    return {
      name: 'servers',
      routes: [...serverRoutes({ servers, roster, boot, cnapiUuid, lastHeartbeat, config }), ...bootRoutes({ boot })],
      agents: {
        frames: { status: (session, frame, size) => servers.queueReport(session, frame.status, size) },
      },
      prepare: () => servers.start(),
      stop: () => servers.stop(),
      metrics: [
        {
          kind: 'labelled gauge',
          name: 'servers',
          help: 'Servers of the whole zone by status; every instance reports the same numbers',
          label: 'status',
          fetch: () => servers.counts(),
        },
        counter(
          'servers_reports_dropped_total',
          "Agents' reports dropped because 64 MiB of reports waited for the database",
          () => servers.reportCounts.dropped,
        ),
        counter(
          'servers_reports_refused_total',
          "Agents' reports refused because they had more than 1,000 VMs, or of which VMs without a uuid were left out",
          () => servers.reportCounts.refused,
        ),
        counter(
          'servers_reports_delayed_total',
          'Reports with changed VMs that were held back, because the VMs of their server change all the time',
          () => servers.reportCounts.delayed,
        ),
      ],
    };
  },
};
