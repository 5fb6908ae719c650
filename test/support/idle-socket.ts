/** The socket of a session, for tests in which nothing happens on it. */
import type { SessionSocket } from '../../lib/control/roster/sessions/session.ts';

/** Takes every frame, has sent everything, and answers each probe. */
export function idleSocket(changes: Partial<SessionSocket> = {}): SessionSocket {
  return {
    isUnread: false,
    isBackedUp: false,
    unsentBytes: 0,
    mayLog: () => true,
    send: () => true,
    probe() {},
    answersProbe: async () => true,
    askToLeave() {},
    terminate() {},
    ...changes,
  };
}
