/** What the roster contributes to an instance. */

import type { Queryable } from '../../platform/postgres/database.ts';
import { readMigrations } from '../../platform/postgres/migration-files.ts';
import { checkName, checkPeers } from '../doctor/network.ts';
import { counter, gauge } from '../metrics/metric.ts';
import type { Subsystem, SubsystemDefinition } from '../subsystem.ts';
import { deleteEndedRuns } from './membership/instance-store.ts';
import type { Roster } from './roster.ts';
import { instanceRoutes } from './routes/instance-routes.ts';
import type { RunListener } from './run-listener.ts';
import { deleteOldStatusHistory } from './status/status-history.ts';

const KEEP_HISTORY_DAYS = 90;
const DELETE_BATCH = 5_000;

interface RosterParts {
  roster: Roster;
  database: Queryable;
  /** Knows the listeners of all subsystems. */
  subsystemHost: { readonly runListeners: readonly RunListener[] };
}

export const rosterSubsystem: SubsystemDefinition<RosterParts> = {
  migrations: readMigrations('roster', import.meta.dirname),
  checks: { dns: checkName, instances: checkPeers },
  open({ roster, database, subsystemHost }): Subsystem {
    return {
      name: 'roster',
      routes: instanceRoutes({ roster }),
      start: (signal) => roster.start(signal, subsystemHost.runListeners),
      beginStop: () => roster.refuseAgents(),
      stop: () => roster.stop(),
      metrics: [
        gauge(
          'roster_losses_queued',
          'Changes of a server to unknown that are not written yet',
          () => roster.sessionLosses.queued,
        ),
        gauge(
          'roster_ownerless_rows',
          'Servers whose instance died and whose agents have not connected to another one yet',
          () => roster.reaper.ownerlessRows,
        ),
        gauge(
          'roster_rows_awaiting_returns',
          'Servers among them that stay running after the grace because agents were told to return later',
          () => roster.reaper.rowsAwaitingReturns,
        ),
        counter(
          'roster_incarnation_alternations_total',
          'Times that two agent processes took turns under one server uuid',
          () => roster.authority.alternations,
        ),
        counter(
          'roster_agents_shed_total',
          'Agents that were asked to move to an instance with fewer agents',
          () => roster.balancer.shed,
        ),
        counter(
          'link_returns_refused_total',
          'Agents refused because they reconnect too often',
          () => roster.authority.returnsRefused,
        ),
        counter('link_arrivals_admitted_total', 'Agents that were admitted', () => roster.arrivals.admitted),
        gauge(
          'link_concurrent_admissions',
          'Agents that were admitted and have not sent their inventory yet',
          () => roster.arrivals.concurrentAdmissions,
        ),
        gauge(
          'link_admission_rate',
          'Agents that may be admitted per second at present; 0 while the instance is late',
          () => roster.arrivals.rate,
        ),
        gauge('zone_at_capacity', '1 while every instance that is not draining refuses agents', () =>
          Number(roster.isZoneAtCapacity),
        ),
        gauge('instance_draining', '1 while the instance drains', () => Number(roster.drainer.isDraining)),
        gauge('database_healthy', "1 while the database answers this instance's beats", () =>
          Number(roster.membership.isDatabaseHealthy),
        ),
        gauge(
          'database_round_trip_seconds',
          'How far away the database is: the shortest answer to a beat in the last minutes',
          () => roster.membership.roundTripMs / 1000,
        ),
      ],
      chores: [
        { name: 'old status history', batch: () => deleteOldStatusHistory(database, KEEP_HISTORY_DAYS, DELETE_BATCH) },
        { name: 'ended runs', batch: () => deleteEndedRuns(database) },
      ],
    };
  },
};
