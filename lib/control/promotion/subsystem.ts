/** What the watch for promotions contributes to an instance. */
import type { Logger } from '../../platform/log.ts';
import type { Queryable } from '../../platform/postgres/database.ts';
import type { Clock } from '../../platform/time/clock.ts';
import type { Roster } from '../roster/roster.ts';
import type { Subsystem, SubsystemDefinition } from '../subsystem.ts';
import { PromotionWatch } from './promotion-watch.ts';

interface PromotionParts {
  database: Queryable;
  roster: Roster;
  link: { readonly takesAgents: boolean };
  config: { slowPollMs: number; reconnectMaxMs: number };
  cnapiUuid: string;
  clock: Clock;
  log: Logger;
}

export const promotionSubsystem: SubsystemDefinition<PromotionParts> = {
  open({ database, roster, link, config, cnapiUuid, clock, log }): Subsystem {
    const watch = new PromotionWatch({
      database,
      sessions: roster.sessions,
      cnapiUuid,
      addresses: () => roster.addresses(),
      takesAgents: () => link.takesAgents,
      closeWithoutStatusChange: (session, reason) => roster.sessionLosses.supersede(session, reason),
      periodMs: config.slowPollMs,
      askAgainMs: config.reconnectMaxMs,
      clock,
      log,
    });
    return { name: 'promotion watch', start: () => watch.start(), stop: () => watch.stop() };
  },
};
