/** What the link's state machine (link.ts) is made of: its state, what may happen to it, and what it asks its driver to do. Pure. */
import type { RefuseFrame, WelcomeFrame } from '../wire/frames.ts';
import { UPGRADE_WITHIN_MS } from '../wire/limits.ts';
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

export interface LinkSession {
  socket: number;
  epoch: number;
  endpoint: Endpoint;
  cnapiUuid: string;
  since: number;
  /** It has answered a heartbeat. */
  steady: boolean;
}

export interface LinkState {
  phase: Phase;
  /** Rises with each phase entered; a timer names the turn it was armed in. */
  turn: number;
  /** The connection being made, in connecting, greeting and journalling. */
  attempt: { socket: number; endpoint: Endpoint; welcome?: WelcomeFrame } | undefined;
  session: LinkSession | undefined;
  /** Why a next session is sought while there is one: nothing is heard from it (silent), asked to (soft) or told to (must). */
  move: 'no' | 'silent' | 'soft' | 'must';
  /** The highest epoch a welcome has named. */
  epoch: number;
  conn: number;
  sockets: number;
  known: readonly Endpoint[];
  /** Keys of the endpoints tried in this round. */
  tried: readonly string[];
  /** Keys of those in it that do not know the link. */
  old: readonly string[];
  /** How the agent speaks while there is no session. */
  scheme: 'link' | 'old';
  /** Endpoints that asked to be left alone, until when. */
  held: Holds;
  /** Where the last session was: its instance may be gone, and is tried last. */
  lost: { endpoint: Endpoint; cnapiUuid: string } | undefined;
  /** How often the time for an upgrade is doubled (`upgradeWithinMs`). */
  patience: number;
  resolvedThisRound: boolean;
  /** Rounds that failed and sessions that did not last, one after the other. */
  failedRounds: number;
  /** A soft request before this is not heard. */
  softFrom: number;
  /** Hellos repeated at once in this round with better numbers. */
  corrections: number;
  reconnectMaxMs: number;
}

export type LinkEvent =
  | { type: 'start' }
  | { type: 'resolved'; turn: number; addresses: readonly Endpoint[] }
  | { type: 'begun'; socket: number }
  | { type: 'opened'; socket: number }
  | {
      type: 'closed';
      socket: number;
      reason: string;
      retryAfterMs?: number | undefined;
      isOldStyle?: boolean | undefined;
    }
  /** Nothing came from the instance for a while; came again; did not come for as long again. */
  | { type: 'silent'; socket: number }
  | { type: 'heard'; socket: number }
  | { type: 'dead'; socket: number }
  | { type: 'steady'; socket: number }
  | { type: 'welcomed'; socket: number; welcome: WelcomeFrame }
  | { type: 'refused'; socket: number; refusal: RefuseFrame }
  | { type: 'journalled'; socket: number }
  | { type: 'renewed' }
  | { type: 'goaway'; socket: number; withinMs: number | undefined; addresses: readonly Endpoint[] }
  /** What the name stands for now, learnt while the older scheme is spoken. */
  | { type: 'found'; addresses: readonly Endpoint[] }
  | { type: 'expired'; turn: number }
  | { type: 'departure'; socket: number }
  | { type: 'stop' };

export type LinkEffect =
  | { do: 'resolve'; turn: number }
  | { do: 'connect'; socket: number; endpoint: Endpoint }
  | { do: 'greet'; socket: number; conn: number }
  | { do: 'journal-epoch'; socket: number; epoch: number }
  | { do: 'renew-journal' }
  /** The session stands: inventory first, then everything else. */
  | { do: 'enter'; socket: number; welcome: WelcomeFrame }
  /** Until a session stands, the older scheme is spoken. */
  | { do: 'fall-back' }
  | { do: 'close'; socket: number; reason: string }
  /** Replaces the timer of the turn before. */
  | { do: 'arm'; turn: number; ms: number }
  | { do: 'arm-departure'; socket: number; ms: number };

/** What a step may know of the world: monotonic milliseconds, and one throw of the dice in [0, 1). */
export interface Circumstances {
  now: number;
  chance: number;
}

const MAX_DOUBLINGS = 2;
/** An instance may name any number of addresses, and others with each refusal. */
const MAX_TRIES_A_ROUND = 100;

export class LinkTransitionError extends Error {
  constructor(state: LinkState, event: LinkEvent) {
    super(`link: ${event.type} is not possible in phase ${state.phase} (turn ${state.turn})`);
    this.name = 'LinkTransitionError';
  }
}

export function initialLink(epoch: number, reconnectMaxMs: number): LinkState {
  return {
    phase: 'idle',
    turn: 0,
    attempt: undefined,
    session: undefined,
    move: 'no',
    epoch,
    conn: 0,
    sockets: 0,
    known: [],
    tried: [],
    old: [],
    scheme: 'link',
    held: {},
    lost: undefined,
    patience: 0,
    resolvedThisRound: false,
    failedRounds: 0,
    softFrom: 0,
    corrections: 0,
    reconnectMaxMs,
  };
}

/**
 * Twice as long after a lost session, for others may have lost theirs with it and stand in the same queue, and again after each
 * address that took too long: whoever gives up there has waited in vain, and what it leaves behind keeps the next ones waiting.
 */
export function upgradeWithinMs({ patience }: LinkState): number {
  return UPGRADE_WITHIN_MS * 2 ** Math.min(patience, MAX_DOUBLINGS);
}

/**
 * What is left to try in this round. The instance of the session comes last, and only if it is silent: the connection may be
 * dead and the instance well. So does that of a session that was lost.
 */
export function candidatesOf(link: LinkState, now: number): Endpoint[] {
  const { session, tried, held } = link;
  if (tried.length >= MAX_TRIES_A_ROUND) return [];
  const open = link.known.filter((endpoint) => !tried.includes(endpointKey(endpoint)) && !isHeld(held, endpoint, now));
  const former = session ?? link.lost;
  const others = former ? open.filter((endpoint) => !isSameInstance(endpoint, former)) : open;
  return others.length === 0 && (!session || link.move === 'silent') ? open : others;
}

/** A transition as the log says it. */
export function transitionOf(before: LinkState, event: LinkEvent, after: LinkState) {
  return {
    from: before.phase,
    to: after.phase,
    event: event.type,
    why: whyOf(event),
    instance: after.attempt ? endpointKey(after.attempt.endpoint) : undefined,
    epoch: after.epoch,
  };
}

/** What the peer or the network gave as the reason. */
export function whyOf(event: LinkEvent): string | undefined {
  if (event.type === 'closed') return event.reason;
  if (event.type === 'refused') return `${event.refusal.code}: ${event.refusal.message}`;
  return event.type === 'goaway' ? (event.withinMs === undefined ? 'soft' : `within ${event.withinMs} ms`) : undefined;
}
