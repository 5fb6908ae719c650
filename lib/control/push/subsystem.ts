/** What push jobs contribute to an instance. */
import { readMigrations } from '../../platform/postgres/migration-files.ts';
import { counter, gauge } from '../metrics/metric.ts';
import type { Subsystem, SubsystemDefinition } from '../subsystem.ts';
import { expiryRecord } from './expiry/expiry-record.ts';
import type { PushJobs } from './push-jobs.ts';
import { PUSH_DUTY } from './push-store.ts';
import { type PushEventRouteDeps, pushEventRoutes } from './routes/push-event-routes.ts';
import { type PushJobRouteDeps, pushJobRoutes } from './routes/push-job-routes.ts';
import { pushNodeRoutes } from './routes/push-node-routes.ts';

const KEEP_DAYS = 30;

interface PushOwnDeps {
  pushJobs: PushJobs;
  config: { cnapiUuid: string };
}

export const pushSubsystem: SubsystemDefinition<PushJobRouteDeps & PushEventRouteDeps & PushOwnDeps> = {
  // They need the duties, the tasks and the roster.
  migrations: readMigrations('push', import.meta.dirname),
  open({ pushJobs, servers, random, config }): Subsystem {
    const { coordinator, messenger, followers } = pushJobs;
    const records = expiryRecord(config.cnapiUuid);
    return {
      name: 'push jobs',
      routes: [
        ...pushJobRoutes({ pushJobs, servers, random }),
        ...pushEventRoutes({ pushJobs }),
        ...pushNodeRoutes({ pushJobs, servers }),
      ],
      start: () => pushJobs.start(),
      endDrain: () => followers.release(),
      stop: () => pushJobs.stop(),
      dutyHandlers: { [PUSH_DUTY]: coordinator },
      agents: {
        onSessionBegan: ({ serverUuid }) => messenger.sessionBegan(serverUuid),
        frames: {
          push_vote: (session, frame) => messenger.onVote(session, frame),
          push_aborted: (session, frame) => messenger.onAborted(session, frame),
        },
      },
      metrics: [
        counter(
          'push_prepares_sent_total',
          'Agents that this instance asked to take part in a push job',
          () => messenger.stats().prepares,
        ),
        counter(
          'push_aborts_sent_total',
          'Agents that this instance told to forget a push job',
          () => messenger.stats().aborts,
        ),
        gauge('push_followers', 'Callers that follow a push job on this instance', () => followers.count),
        gauge(
          'push_followers_memory_bytes',
          'What the followers of push jobs on this instance may remember of nodes',
          () => followers.rememberedBytes,
        ),
        counter(
          'push_followers_refused_total',
          'Callers that could not follow a push job, because too many did',
          () => followers.refused,
        ),
        counter('push_votes_total', 'Votes of agents about push jobs', () => messenger.stats().votes),
      ],
      chores: [
        { name: 'old push jobs', batch: () => pushJobs.deleteOlderThan(KEEP_DAYS, records) },
        { name: 'surplus push jobs of organizations', batch: () => pushJobs.deleteSurplus(records) },
        { name: 'rehab of removed servers', batch: () => pushJobs.messenger.endRehabOfRemoved() },
      ],
    };
  },
};
