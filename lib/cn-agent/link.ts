/**
 * One agent's connection life as data: which instance it is with, and how it comes to the next one. Pure; `step` is
 * run by link-driver.ts, which owns the sockets, timers and the journal. DESIGN section 5, docs/agent-protocol.md.
 *
 *            start           addresses          upgraded          welcome          journalled
 *     idle ────────► resolving ──────► connecting ──────► greeting ──────► journalling ────────► live
 *                     ▲    │           ▲    │  ▲ next        │ refused, late,      │ closed       │ session lost,
 *      all known ones │    │ none left │    │  └─ address ◄──┴─ closed ◄───────────┘              │ or told to go
 *      have failed    │    ▼           │    ▼                │ stale-journal                      │
 *                     └── waiting ─────┴────┘                ▼                                    │
 *                          ▲ full jitter                 renewing ──► connecting                  │
 *                          └──────────────────────────────────────────────────────────────────────┘
 *     any ── stop ──► stopped
 *
 * Beside the phase stands the session, the one connection that was accepted last. While an agent moves (goaway) it has
 * both: the session it still serves and the phase of the next one. It opens the new before it closes the old.
 */
import type { RefuseFrame, WelcomeFrame } from '../wire/frames.ts';
import { UPGRADE_WITHIN_MS, WELCOME_WITHIN_MS } from '../wire/limits.ts';
import { type Endpoint, endpointKey, type Holds, heldForMs, isHeld, isSameInstance, withHold } from './endpoints.ts';

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
  /** It has answered a heartbeat: the next loss is worth a retry at once. */
  steady: boolean;
}

export interface LinkState {
  phase: Phase;
  /** Rises with each phase entered; a timer names the turn it was armed in. */
  turn: number;
  /** The connection being made, in connecting, greeting and journalling. */
  attempt: { socket: number; endpoint: Endpoint; welcome?: WelcomeFrame } | undefined;
  session: LinkSession | undefined;
  /** Why a next session is sought while there is one: asked to (soft) or told to (must). */
  move: 'no' | 'soft' | 'must';
  /** The highest epoch a welcome has named. */
  epoch: number;
  conn: number;
  sockets: number;
  known: readonly Endpoint[];
  /** Keys of the endpoints tried in this round. */
  tried: readonly string[];
  /** Endpoints that asked to be left alone, until when. */
  held: Holds;
  resolvedThisRound: boolean;
  /** Rounds that failed, one after the other. */
  failedRounds: number;
  /** Hellos repeated at once in this round with better numbers. */
  corrections: number;
  reconnectMaxMs: number;
}

export type LinkEvent =
  | { type: 'start' }
  | { type: 'resolved'; turn: number; addresses: readonly Endpoint[] }
  | { type: 'opened'; socket: number }
  | { type: 'closed'; socket: number; reason: string; retryAfterMs?: number | undefined }
  | { type: 'silent'; socket: number }
  | { type: 'steady'; socket: number }
  | { type: 'welcomed'; socket: number; welcome: WelcomeFrame }
  | { type: 'refused'; socket: number; refusal: RefuseFrame }
  | { type: 'journalled'; socket: number }
  | { type: 'renewed' }
  | { type: 'goaway'; socket: number; withinMs: number | undefined; addresses: readonly Endpoint[] }
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
  | { do: 'close'; socket: number; reason: string }
  /** Replaces the timer of the turn before. */
  | { do: 'arm'; turn: number; ms: number }
  | { do: 'arm-departure'; socket: number; ms: number };

/** What a step may know of the world: monotonic milliseconds, and one throw of the dice in [0, 1). */
export interface Circumstances {
  now: number;
  chance: number;
}

export const FIRST_BACKOFF_MS = 250;
/** Spread of the first retry after a session that had worked. */
export const QUICK_RETRY_MS = 100;
const RESOLVE_WITHIN_MS = 10_000;
const MAX_CORRECTIONS = 3;

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
    held: {},
    resolvedThisRound: false,
    failedRounds: 0,
    corrections: 0,
    reconnectMaxMs,
  };
}

/** The same state and event give the same answer; the state given is left as it was. */
export function step(state: LinkState, event: LinkEvent, { now, chance }: Circumstances): LinkStep {
  const draft: Draft = { ...state, effects: [], now, chance, was: state, event };
  if (state.phase !== 'stopped') apply(draft, event);
  const { effects, now: _now, chance: _chance, was: _was, event: _event, ...next } = draft;
  return { state: next, effects };
}

export type LinkStep = { state: LinkState; effects: LinkEffect[] };
type Draft = LinkState & Circumstances & { effects: LinkEffect[]; was: LinkState; event: LinkEvent };

function apply(link: Draft, event: LinkEvent): void {
  switch (event.type) {
    case 'start':
      must(link, link.phase === 'idle');
      return startRound(link);
    case 'resolved':
      return event.turn === link.turn ? onResolved(link, event.addresses) : undefined;
    case 'opened':
      return isAttempt(link, event.socket) ? onOpened(link) : undefined;
    case 'closed':
      return onClosed(link, event);
    case 'silent':
      return leaveSession(link, event.socket, 'silent');
    case 'steady':
      return isSession(link, event.socket) ? onSteady(link) : undefined;
    case 'welcomed':
      return isAttempt(link, event.socket) ? onWelcomed(link, event.welcome) : undefined;
    case 'refused':
      return isAttempt(link, event.socket) ? onRefused(link, event.refusal) : undefined;
    case 'journalled':
      return isAttempt(link, event.socket) ? onJournalled(link) : undefined;
    case 'renewed':
      must(link, link.phase === 'renewing');
      link.epoch = 0;
      return connect(link, attemptOf(link).endpoint);
    case 'goaway':
      return onGoaway(link, event);
    case 'expired':
      return event.turn === link.turn ? onExpired(link) : undefined;
    case 'departure':
      return leaveSession(link, event.socket, 'told to go away');
    case 'stop':
      return onStop(link);
    default:
      return event satisfies never;
  }
}

function onResolved(link: Draft, addresses: readonly Endpoint[]): void {
  must(link, link.phase === 'resolving');
  link.resolvedThisRound = true;
  if (addresses.length > 0) link.known = addresses;
  nextAddress(link);
}

function onOpened(link: Draft): void {
  must(link, link.phase === 'connecting');
  link.conn += 1;
  enter(link, 'greeting', WELCOME_WITHIN_MS);
  link.effects.push({ do: 'greet', socket: attemptOf(link).socket, conn: link.conn });
}

/** A welcome that is not above the highest epoch is an echo of the past: not heard. */
function onWelcomed(link: Draft, welcome: WelcomeFrame): void {
  if (link.phase !== 'greeting' || welcome.epoch <= link.epoch) return;
  const attempt = attemptOf(link);
  link.epoch = welcome.epoch;
  link.reconnectMaxMs = welcome.reconnectMaxMs;
  if (welcome.addresses.length > 0) link.known = welcome.addresses;
  link.attempt = { ...attempt, welcome };
  enter(link, 'journalling');
  link.effects.push({ do: 'journal-epoch', socket: attempt.socket, epoch: welcome.epoch });
}

function onJournalled(link: Draft): void {
  const { socket, endpoint, welcome } = attemptOf(link);
  if (link.phase !== 'journalling' || welcome === undefined) throw new LinkTransitionError(link.was, link.event);
  const former = link.session;
  link.session = { socket, epoch: welcome.epoch, endpoint, cnapiUuid: welcome.cnapiUuid, steady: false };
  link.attempt = undefined;
  link.move = 'no';
  link.effects.push({ do: 'enter', socket, welcome });
  if (former) link.effects.push({ do: 'close', socket: former.socket, reason: 'moved to another instance' });
  enter(link, 'live');
}

function onSteady(link: Draft): void {
  if (link.session) link.session = { ...link.session, steady: true };
  link.failedRounds = 0;
}

function onRefused(link: Draft, refusal: RefuseFrame): void {
  const { socket, endpoint } = attemptOf(link);
  link.effects.push({ do: 'close', socket, reason: `refused: ${refusal.code}` });
  if (refusal.addresses && refusal.addresses.length > 0) link.known = refusal.addresses;
  hold(link, endpoint, refusal.retryAfterMs);
  switch (refusal.code) {
    case 'superseded':
      return correct(link, (refusal.conn ?? 0) >= link.conn, () => {
        link.conn = refusal.conn ?? link.conn;
        connect(link, endpoint);
      });
    case 'stale-journal':
    case 'epoch-out-of-range':
      return correct(link, link.session === undefined, () => {
        enter(link, 'renewing');
        link.effects.push({ do: 'renew-journal' });
      });
    case 'incarnation-alive':
      return link.session ? attemptFailed(link) : giveUpRound(link);
    default:
      return attemptFailed(link);
  }
}

/** A hello that another number would mend is repeated at the same endpoint, but not for ever. */
function correct(link: Draft, possible: boolean, again: () => void): void {
  if (!possible || link.corrections >= MAX_CORRECTIONS || link.phase !== 'greeting') return attemptFailed(link);
  link.corrections += 1;
  again();
}

function hold(link: Draft, endpoint: Endpoint, ms: number | undefined): void {
  if (ms) link.held = withHold(link.held, { endpoint, ms }, link.now);
}

function onClosed(link: Draft, { socket, retryAfterMs }: Extract<LinkEvent, { type: 'closed' }>): void {
  if (isAttempt(link, socket) && link.phase !== 'renewing') {
    hold(link, attemptOf(link).endpoint, retryAfterMs);
    return attemptFailed(link);
  }
  if (isSession(link, socket)) sessionLost(link);
}

function onGoaway(link: Draft, event: Extract<LinkEvent, { type: 'goaway' }>): void {
  if (isAttempt(link, event.socket) && link.phase !== 'renewing') {
    link.effects.push({ do: 'close', socket: event.socket, reason: 'told to go away' });
    return attemptFailed(link);
  }
  if (!isSession(link, event.socket)) return;
  if (event.addresses.length > 0) link.known = event.addresses;
  const moving = link.move !== 'no';
  if (event.withinMs !== undefined) {
    link.move = 'must';
    link.effects.push({ do: 'arm-departure', socket: event.socket, ms: event.withinMs });
  } else if (!moving) link.move = 'soft';
  if (!moving && link.phase === 'live') startRound(link);
}

function onExpired(link: Draft): void {
  switch (link.phase) {
    case 'connecting':
    case 'greeting':
      link.effects.push({ do: 'close', socket: attemptOf(link).socket, reason: 'no answer in time' });
      return attemptFailed(link);
    case 'resolving':
      return onResolved(link, []);
    case 'waiting':
      return startRound(link);
    default:
      throw new LinkTransitionError(link.was, link.event);
  }
}

function onStop(link: Draft): void {
  for (const held of [link.attempt, link.session]) {
    if (held) link.effects.push({ do: 'close', socket: held.socket, reason: 'agent stops' });
  }
  link.attempt = undefined;
  link.session = undefined;
  enter(link, 'stopped');
}

/** An attempt that had been welcomed took authority from the old session's instance: that session is over as well. */
function attemptFailed(link: Draft): void {
  const session = link.session;
  link.attempt = undefined;
  if (session && link.epoch > session.epoch) {
    link.effects.push({ do: 'close', socket: session.socket, reason: 'superseded by a newer session that was lost' });
    link.session = undefined;
    link.move = 'no';
  }
  nextAddress(link);
}

function leaveSession(link: Draft, socket: number, reason: string): void {
  if (!isSession(link, socket)) return;
  link.effects.push({ do: 'close', socket, reason });
  sessionLost(link);
}

function sessionLost(link: Draft): void {
  const steady = link.session?.steady ?? false;
  link.session = undefined;
  link.move = 'no';
  if (link.phase !== 'live' && link.phase !== 'waiting') return;
  if (steady) enter(link, 'waiting', link.chance * QUICK_RETRY_MS);
  else giveUpRound(link);
}

function startRound(link: Draft): void {
  link.tried = [];
  link.corrections = 0;
  link.resolvedThisRound = false;
  nextAddress(link);
}

/** Each known endpoint is tried, in random order, before anything is waited for. */
function nextAddress(link: Draft): void {
  const candidates = link.known.filter((endpoint) => isCandidate(link, endpoint));
  const chosen = candidates[Math.floor(link.chance * candidates.length)];
  if (chosen) return connect(link, chosen);
  if (link.session && link.move === 'soft') {
    link.move = 'no';
    return enter(link, 'live');
  }
  if (link.resolvedThisRound) return giveUpRound(link);
  enter(link, 'resolving', RESOLVE_WITHIN_MS);
  link.effects.push({ do: 'resolve', turn: link.turn });
}

function isCandidate(link: Draft, endpoint: Endpoint): boolean {
  if (link.tried.includes(endpointKey(endpoint)) || isHeld(link.held, endpoint, link.now)) return false;
  return !link.session || !isSameInstance(endpoint, link.session);
}

/** Full jitter: anything from nothing to a ceiling that doubles; never before an endpoint can be tried at all. */
function giveUpRound(link: Draft): void {
  const ceiling = Math.min(link.reconnectMaxMs, FIRST_BACKOFF_MS * 2 ** Math.min(link.failedRounds, 20));
  const heldMs = heldForMs(link.held, link.known, link.now);
  link.attempt = undefined;
  link.failedRounds += 1;
  enter(link, 'waiting', heldMs + link.chance * ceiling);
}

function connect(link: Draft, endpoint: Endpoint): void {
  link.sockets += 1;
  link.tried = [...link.tried, endpointKey(endpoint)];
  link.attempt = { socket: link.sockets, endpoint };
  enter(link, 'connecting', UPGRADE_WITHIN_MS);
  link.effects.push({ do: 'connect', socket: link.sockets, endpoint });
}

function enter(link: Draft, phase: Phase, withinMs?: number): void {
  link.phase = phase;
  link.turn += 1;
  if (withinMs !== undefined) link.effects.push({ do: 'arm', turn: link.turn, ms: withinMs });
}

const isAttempt = (link: Draft, socket: number): boolean => link.attempt?.socket === socket;

const isSession = (link: Draft, socket: number): boolean => link.session?.socket === socket;

function attemptOf(link: Draft): NonNullable<LinkState['attempt']> {
  if (!link.attempt) throw new LinkTransitionError(link.was, link.event);
  return link.attempt;
}

function must(link: Draft, legal: boolean): void {
  if (!legal) throw new LinkTransitionError(link.was, link.event);
}
