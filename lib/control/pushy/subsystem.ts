/** What push jobs for clients of the reference contribute to an instance: their routes. */
import type { Clock } from '../../platform/clock.ts';
import type { Events } from '../events/events.ts';
import type { PushJobs } from '../push/push-jobs.ts';
import type { Subsystem, SubsystemDefinition } from '../subsystem.ts';
import { PushyFeeds } from './pushy-feeds.ts';
import { type PushyRouteDeps, pushyRoutes } from './routes/pushy-routes.ts';

interface PushyParts extends Omit<PushyRouteDeps, 'feeds' | 'sessions' | 'pushJobs'> {
  pushJobs: PushJobs;
  events: Events;
  roster: { sessions: { readonly size: number }; membership: { readonly run: string } };
  clock: Clock;
}

export const pushySubsystem: SubsystemDefinition<PushyParts> = {
  open({ roster, ...parts }): Subsystem {
    const sessions = {
      run: () => roster.membership.run,
      get size() {
        return roster.sessions.size;
      },
    };
    return { name: 'pushy', routes: pushyRoutes({ ...parts, sessions, feeds: new PushyFeeds(parts) }) };
  },
};
