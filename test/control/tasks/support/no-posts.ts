/** For tests without legacy agents: a dispatch to servers without a session that sends nothing. */
import type { PostDispatch } from '../../../../lib/control/tasks/dispatch/post-dispatch.ts';

export const noPosts: PostDispatch = {
  hint: () => undefined,
  poll: () => undefined,
  stop: async () => undefined,
  hasRoom: true,
  endClaimPeriod: () => [],
  start: () => undefined,
  stopClaiming: () => undefined,
  stats: () => ({ postsInFlight: 0, posted: 0, postsLost: 0 }),
};
