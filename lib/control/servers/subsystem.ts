/** What servers contribute to an instance. */
import { counter } from '../metrics/metric.ts';
import type { Subsystem } from '../subsystem.ts';
import type { Servers } from './servers.ts';

export function serversSubsystem(servers: Servers): Subsystem {
  return {
    name: 'servers',
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
        () => servers.droppedReports,
      ),
    ],
  };
}
