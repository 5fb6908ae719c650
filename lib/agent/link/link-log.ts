/** What the link logs of its steps. */
import type { Logger } from '../../platform/log.ts';
import { describeTransition, type LinkEvent, type LinkState } from './link-state.ts';

/** After this many failed rounds a warning is logged once. */
const WARN_AFTER_ROUNDS = 3;

interface LinkStepTaken {
  before: LinkState;
  event: LinkEvent;
  after: LinkState;
  /** Why the last attempt failed. */
  lastFailure: string | undefined;
}

export function logTransition(
  { log, serverUuid }: { log: Logger; serverUuid: string },
  { before, event, after, lastFailure }: LinkStepTaken,
): void {
  const isSameSession = before.session?.socketId === after.session?.socketId;
  if (before.phase === after.phase && isSameSession) return;
  const fields = { server_uuid: serverUuid, ...describeTransition(before, event, after) };
  if (event.type === 'refused' && event.refusal.code === 'incarnation-alive')
    log.warn(fields, 'link: another agent has this uuid');
  else if (!isSameSession) log.info(fields, after.session ? 'link: live' : 'link: lost');
  else if (before.scheme !== after.scheme)
    log.warn(fields, 'link: no instance here has an agent link; using the legacy protocol until one does');
  else if (before.failedRounds < WARN_AFTER_ROUNDS && after.failedRounds >= WARN_AFTER_ROUNDS)
    log.warn({ ...fields, reason: lastFailure }, 'link: no instance accepts this agent; trying again');
  else log.debug(fields, 'link');
}
