/** A dispatch to servers without a session that sends nothing, for tests without legacy agents. */
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
