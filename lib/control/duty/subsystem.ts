/** What duties contribute to an instance. */
import { readMigrations } from '../../platform/postgres/migration-files.ts';
import { counter, gauge } from '../metrics/metric.ts';
import type { Subsystem, SubsystemDefinition } from '../subsystem.ts';
import type { DutyHandlers } from './duty.ts';
import type { DutyKeeper, DutyStats } from './duty-keeper.ts';

const KEEP_DAYS = 30;

interface DutyParts {
  duties: DutyKeeper;
  /** Knows the handlers of all subsystems. */
  subsystemHost: { readonly dutyHandlers: DutyHandlers };
}

export const dutySubsystem: SubsystemDefinition<DutyParts> = {
  // They need the instances of the roster.
  migrations: readMigrations('duty', import.meta.dirname),
  open({ duties, subsystemHost }): Subsystem {
    const stat = (key: keyof DutyStats) => () => duties.stats()[key];
    return {
      name: 'duties',
      start: () => duties.start(subsystemHost.dutyHandlers),
      runs: {
        onRunRenewed: () => duties.runRenewed(),
        onRunsEnded: () => duties.trigger(),
        onRecovered: () => duties.trigger(),
      },
      beginDrain: () => duties.beginDrain(),
      endDrain: () => duties.handOver(),
      stop: () => duties.stop(),
      metrics: [
        gauge('duties_held', 'Duties that this instance carries out', stat('held')),
        counter('duties_claimed_total', 'Duties that this instance claimed', stat('claimed')),
        counter('duties_taken_over_total', 'Duties that this instance took over from a dead one', stat('takenOver')),
        counter('duties_ended_total', 'Duties that this instance ended', stat('ended')),
        counter(
          'duties_handed_over_total',
          'Duties that this instance handed over, because it left or their work failed',
          stat('handedOver'),
        ),
        counter(
          'duties_retried_total',
          'How often the work on a duty met a slow or unreachable database and was tried again',
          stat('retried'),
        ),
        counter(
          'duties_failed_total',
          'Failures of the work on a duty, which is continued after a pause',
          stat('failed'),
        ),
        counter('duties_lost_total', 'Duties that another instance took over from this one', stat('lost')),
      ],
      chores: [{ name: 'old duties', batch: () => duties.deleteOlderThan(KEEP_DAYS) }],
    };
  },
};
