/** For tests without legacy agents: a dispatch to servers without a session that sends nothing. */
import type { SessionlessDispatch } from '../../../../lib/control/tasks/dispatch/dispatch.ts';

export const noPosts: SessionlessDispatch = {
  hint: () => undefined,
  poll: () => undefined,
  stop: async () => undefined,
  hasRoom: true,
  endClaimPeriod: () => [],
  start: () => undefined,
  stopClaiming: () => undefined,
  stats: () => ({ postsInFlight: 0, posted: 0, postsLost: 0 }),
};
