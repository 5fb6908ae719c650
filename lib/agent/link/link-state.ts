/**
 * Types of the link's state machine (link-step.ts): its state, its events, and the effects that its
 * driver carries out. Pure.
 */

import { UPGRADE_WITHIN_MS } from '../../protocol/limits.ts';
import type { RefuseFrame, WelcomeFrame } from '../../protocol/link/frames.ts';
import { type Endpoint, endpointKey, type Holds, isHeld, isSameInstance } from './endpoints.ts';

export type Phase =
  | 'idle'
  | 'resolving'
  | 'connecting'
  | 'greeting'
  | 'journalling'
  | 'renewing'
  | 'live'
  | 'waiting'
  | 'stopped';

interface LinkSession {
  socketId: number;
  epoch: number;
  endpoint: Endpoint;
  cnapiUuid: string;
  since: number;
  /** The instance has answered a heartbeat. */
  steady: boolean;
}

export interface LinkState {
  phase: Phase;
  /** Incremented with each phase entered; a timer carries the number of its phase. */
  timerGeneration: number;
  /**
   * The connection that is being opened, in the phases connecting, greeting, journalling and
   * renewing.
   */
  attempt: { socketId: number; endpoint: Endpoint; welcome?: WelcomeFrame } | undefined;
  session: LinkSession | undefined;
  /**
   * Why the agent seeks another session while it has one: the instance is silent, or sent a goaway
   * without a time (soft) or with one (must).
   */
  leaveReason: 'no' | 'silent' | 'soft' | 'must';
  /** The highest epoch of any welcome. */
  epoch: number;
  conn: number;
  sockets: number;
  known: readonly Endpoint[];
  /** Keys of the endpoints tried in this round. */
  tried: readonly string[];
  /** Keys of the endpoints tried in this round that have no link route. */
  legacyEndpoints: readonly string[];
  /** How the agent communicates while there is no session; `legacy` is the legacy protocol. */
  scheme: 'link' | 'legacy';
  /** Endpoints that asked agents not to try them for a while, each with the end of that time. */
  avoidUntil: Holds;
  /** Where the last session was. Its instance may be gone, so it is tried last. */
  lost: { endpoint: Endpoint; cnapiUuid: string } | undefined;
  /** How often the upgrade deadline is doubled (`upgradeWithinMs`). */
  upgradeTimeoutDoublings: number;
  resolvedThisRound: boolean;
  /** Consecutive failed rounds and sessions that did not last. */
  failedRounds: number;
  /** A soft goaway before this time is ignored. */
  softFrom: number;
  /** Hellos repeated immediately in this round with corrected numbers. */
  corrections: number;
  reconnectMaxMs: number;
}

export type LinkEvent =
  | { type: 'start' }
  | { type: 'resolved'; timerGeneration: number; addresses: readonly Endpoint[] }
  | { type: 'begun'; socketId: number }
  | { type: 'opened'; socketId: number }
  | {
      type: 'closed';
      socketId: number;
      reason: string;
      retryAfterMs?: number | undefined;
      isLegacyCnapi?: boolean | undefined;
    }
  /**
   * Nothing arrived for serverSilenceMs (silent), something arrived again (heard), or nothing
   * arrived for as long again (dead).
   */
  | { type: 'silent'; socketId: number }
  | { type: 'heard'; socketId: number }
  | { type: 'dead'; socketId: number }
  | { type: 'steady'; socketId: number }
  | { type: 'welcomed'; socketId: number; welcome: WelcomeFrame }
  | { type: 'refused'; socketId: number; refusal: RefuseFrame }
  | { type: 'journalled'; socketId: number }
  | { type: 'renewed' }
  | { type: 'goaway'; socketId: number; withinMs: number | undefined; addresses: readonly Endpoint[] }
  /** What the DNS name resolves to now, learnt while the legacy protocol is in use. */
  | { type: 'found'; addresses: readonly Endpoint[] }
  | { type: 'expired'; timerGeneration: number }
  | { type: 'departure'; socketId: number }
  | { type: 'stop' };

export type LinkEffect =
  | { do: 'resolve'; timerGeneration: number }
  | { do: 'connect'; socketId: number; endpoint: Endpoint }
  | { do: 'greet'; socketId: number; conn: number }
  | { do: 'journal-epoch'; socketId: number; epoch: number }
  | { do: 'renew-journal' }
  /** The session is open: send the inventory first, then everything else. */
  | { do: 'enter'; socketId: number; welcome: WelcomeFrame }
  /** Use the legacy protocol until a session opens. */
  | { do: 'fall-back' }
  | { do: 'close'; socketId: number; reason: string }
  /** Replaces the timer of the previous phase. */
  | { do: 'arm'; timerGeneration: number; ms: number }
  | { do: 'arm-departure'; socketId: number; ms: number };

/** A step's inputs from outside: monotonic milliseconds and one random number in [0, 1). */
export interface StepInputs {
  now: number;
  chance: number;
}

const MAX_DOUBLINGS = 2;
/** An instance may name any number of addresses, and other ones with each refusal. */
const MAX_TRIES_A_ROUND = 100;

export class LinkTransitionError extends Error {
  constructor(state: LinkState, event: LinkEvent) {
    super(`link: ${event.type} is not possible in phase ${state.phase} (timer ${state.timerGeneration})`);
    this.name = 'LinkTransitionError';
  }
}

export function initialLink(epoch: number, reconnectMaxMs: number): LinkState {
  return {
    phase: 'idle',
    timerGeneration: 0,
    attempt: undefined,
    session: undefined,
    leaveReason: 'no',
    epoch,
    conn: 0,
    sockets: 0,
    known: [],
    tried: [],
    legacyEndpoints: [],
    scheme: 'link',
    avoidUntil: {},
    lost: undefined,
    upgradeTimeoutDoublings: 0,
    resolvedThisRound: false,
    failedRounds: 0,
    softFrom: 0,
    corrections: 0,
    reconnectMaxMs,
  };
}

/**
 * The upgrade deadline. It is doubled after a lost session, because other agents may have lost
 * theirs and wait in the same queue. It is doubled again after each address that took too long: an
 * agent that gives up there has waited for nothing, and its abandoned attempt delays the next
 * agents.
 */
export function upgradeWithinMs({ upgradeTimeoutDoublings }: LinkState): number {
  return UPGRADE_WITHIN_MS * 2 ** Math.min(upgradeTimeoutDoublings, MAX_DOUBLINGS);
}

/**
 * The endpoints left to try in this round. The session's own instance comes last, and only if it is
 * silent: perhaps only the connection is dead. The instance of a lost session also comes last.
 */
export function listCandidates(link: LinkState, now: number): Endpoint[] {
  const { session, tried, avoidUntil } = link;
  if (tried.length >= MAX_TRIES_A_ROUND) return [];
  const open = link.known.filter(
    (endpoint) => !tried.includes(endpointKey(endpoint)) && !isHeld(avoidUntil, endpoint, now),
  );
  const former = session ?? link.lost;
  const others = former ? open.filter((endpoint) => !isSameInstance(endpoint, former)) : open;
  return others.length === 0 && (!session || link.leaveReason === 'silent') ? open : others;
}

/** The log fields of a transition. */
export function describeTransition(before: LinkState, event: LinkEvent, after: LinkState) {
  return {
    from: before.phase,
    to: after.phase,
    event: event.type,
    reason: reasonOf(event),
    instance: after.attempt ? endpointKey(after.attempt.endpoint) : undefined,
    epoch: after.epoch,
  };
}

/** The reason that the peer or the network gave. */
export function reasonOf(event: LinkEvent): string | undefined {
  if (event.type === 'closed') return event.reason;
  if (event.type === 'refused') return `${event.refusal.code}: ${event.refusal.message}`;
  return event.type === 'goaway' ? (event.withinMs === undefined ? 'soft' : `within ${event.withinMs} ms`) : undefined;
}
