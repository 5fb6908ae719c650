/**
 * One agent's connection as data: which instance it uses and how it gets to the next one. Pure;
 * run by link-driver.ts. docs/design/roster.md, docs/agent-protocol.md.
 *
 *           start         addresses         upgraded         welcome         journalled
 *     idle ──────► resolving ─────► connecting ─────► greeting ─────► journalling ────► live
 *                   ▲    │          ▲    │  ▲ next       │ refused, late │ closed       │ session
 *    all known ones │    │ none     │    │  └─ address ◄─┴─ or closed ◄──┘              │ lost or
 *    have failed    │    ▼ left     │    ▼               │ stale-journal                │ left
 *                   └── waiting ────┴────┘               ▼                              │
 *                        ▲ full jitter                renewing ──► connecting           │
 *                        └──────────────────────────────────────────────────────────────┘
 *     any ── stop ──► stopped
 *
 * Besides the phase, the state holds the session: the connection that was accepted last. While an
 * agent moves it has both, the session that it still serves and the phase of the next one. It opens
 * the new session before it closes the old one. `leaveReason` says why it moves:
 *
 *     no ── soft goaway ──► soft ── failed round ──► no     must ── its time is over ──► closed
 *     no, soft, silent ── goaway with a time ──► must       silent ── heard again ──► no
 *     no, soft ── nothing heard ──► silent                  silent ── as long again ──► closed
 *
 * The agent keeps a silent session while it tries other instances and then this one again: one that
 * was only suspended would take a closed connection for the death of the server.
 *
 * Without a session the agent may use the legacy protocol (fallback.ts). That begins at the end of
 * a round in which all addresses, or some of them after three failed rounds, lacked the link route.
 * It ends with the next session. Rounds continue meanwhile.
 */

import { WELCOME_WITHIN_MS } from '../../protocol/limits.ts';
import type { RefuseFrame, WelcomeFrame } from '../../protocol/link/frames.ts';
import { type Endpoint, endpointKey, heldForMs, withHold } from './endpoints.ts';
import { areAllLegacy, lookAgainMs, namesAnother, shouldFallBack } from './fallback.ts';
import {
  type LinkEffect,
  type LinkEvent,
  type LinkState,
  LinkTransitionError,
  listCandidates,
  type Phase,
  type StepInputs,
  upgradeWithinMs,
} from './link-state.ts';
import { reconnectMaxMsOf } from './link-times.ts';

const FIRST_BACKOFF_MS = 250;
/** The first retry after a session that had worked is spread over this time. */
const QUICK_RETRY_MS = 100;
/** Agents that return at the time an instance gave them are spread over this time. */
const RETURN_SPREAD_MS = 1000;
const RESOLVE_WITHIN_MS = 10_000;
const MAX_CORRECTIONS = 3;
/** A session that answered and lasted this long has worked: its loss allows a retry immediately. */
const LASTING_MS = 5000;
/** At most one soft goaway in this time is honoured. */
const SOFT_EVERY_MS = 1000;
/** Counting on from a higher conn could leave the range of safe integers. */
const MAX_CONN = 2 ** 48;

/** Returns the same step for the same arguments; does not modify `state`. */
export function stepLink(state: LinkState, event: LinkEvent, { now, chance }: StepInputs): LinkStep {
  const draft: Draft = { ...state, effects: [], now, chance, was: state, event };
  if (state.phase !== 'stopped') apply(draft, event);
  const { effects, now: _now, chance: _chance, was: _was, event: _event, ...next } = draft;
  return { state: next, effects };
}

type LinkStep = { state: LinkState; effects: LinkEffect[] };
type Draft = LinkState & StepInputs & { effects: LinkEffect[]; was: LinkState; event: LinkEvent };

function apply(link: Draft, event: LinkEvent): void {
  switch (event.type) {
    case 'start':
      must(link, link.phase === 'idle');
      return startRound(link);
    case 'resolved':
      return event.timerGeneration === link.timerGeneration ? onResolved(link, event.addresses) : undefined;
    case 'begun':
      return isAttempt(link, event.socketId) ? onBegun(link) : undefined;
    case 'opened':
      return isAttempt(link, event.socketId) ? onOpened(link) : undefined;
    case 'closed':
      return onClosed(link, event);
    case 'silent':
      return isSession(link, event.socketId) ? onSilent(link) : undefined;
    case 'heard':
      return isSession(link, event.socketId) ? onHeard(link) : undefined;
    case 'dead':
      return leaveSession(link, event.socketId, 'silent');
    case 'steady':
      return isSession(link, event.socketId) ? onSteady(link) : undefined;
    case 'welcomed':
      return isAttempt(link, event.socketId) ? onWelcomed(link, event.welcome) : undefined;
    case 'refused':
      return isAttempt(link, event.socketId) ? onRefused(link, event.refusal) : undefined;
    case 'journalled':
      return isAttempt(link, event.socketId) ? onJournalled(link) : undefined;
    case 'renewed':
      must(link, link.phase === 'renewing');
      link.epoch = 0;
      return connect(link, attemptOf(link).endpoint);
    case 'goaway':
      return onGoaway(link, event);
    case 'found':
      return onFound(link, event.addresses);
    case 'expired':
      return event.timerGeneration === link.timerGeneration ? onExpired(link) : undefined;
    case 'departure':
      return leaveSession(link, event.socketId, 'asked to leave');
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

/** The upgrade deadline counts from here: a fleet may have queued the dial. */
function onBegun(link: Draft): void {
  must(link, link.phase === 'connecting');
  arm(link, upgradeWithinMs(link));
}

function onOpened(link: Draft): void {
  must(link, link.phase === 'connecting');
  link.conn += 1;
  enter(link, 'greeting', WELCOME_WITHIN_MS);
  link.effects.push({ do: 'greet', socketId: attemptOf(link).socketId, conn: link.conn });
}

/** Ignores a welcome that is not above the highest epoch: it is out of date. */
function onWelcomed(link: Draft, welcome: WelcomeFrame): void {
  if (link.phase !== 'greeting' || welcome.epoch <= link.epoch) return;
  const attempt = attemptOf(link);
  link.epoch = welcome.epoch;
  link.reconnectMaxMs = reconnectMaxMsOf(welcome);
  if (welcome.addresses.length > 0) link.known = welcome.addresses;
  link.attempt = { ...attempt, welcome };
  enter(link, 'journalling');
  link.effects.push({ do: 'journal-epoch', socketId: attempt.socketId, epoch: welcome.epoch });
}

function onJournalled(link: Draft): void {
  const { socketId, endpoint, welcome } = attemptOf(link);
  if (link.phase !== 'journalling' || welcome === undefined) throw new LinkTransitionError(link.was, link.event);
  const former = link.session;
  const { epoch, cnapiUuid } = welcome;
  link.session = { socketId, epoch, endpoint, cnapiUuid, since: link.now, steady: false };
  link.attempt = undefined;
  link.lost = undefined;
  link.leaveReason = 'no';
  link.legacyEndpoints = [];
  link.scheme = 'link';
  link.effects.push({ do: 'enter', socketId, welcome });
  if (former) link.effects.push({ do: 'close', socketId: former.socketId, reason: 'moved to another instance' });
  enter(link, 'live');
}

function onSteady(link: Draft): void {
  if (link.session) link.session = { ...link.session, steady: true };
}

function onRefused(link: Draft, refusal: RefuseFrame): void {
  const { socketId, endpoint } = attemptOf(link);
  const { conn = 0 } = refusal;
  link.effects.push({ do: 'close', socketId, reason: `refused: ${refusal.code}` });
  if (refusal.addresses && refusal.addresses.length > 0) link.known = refusal.addresses;
  hold(link, endpoint, refusal.retryAfterMs);
  switch (refusal.code) {
    case 'superseded':
      return correct(link, conn >= link.conn && conn <= MAX_CONN, () => {
        link.conn = conn;
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

/** Repeats the hello with corrected numbers at the same endpoint, a bounded number of times. */
function correct(link: Draft, possible: boolean, again: () => void): void {
  if (!possible || link.corrections >= MAX_CORRECTIONS || link.phase !== 'greeting') return attemptFailed(link);
  link.corrections += 1;
  again();
}

function hold(link: Draft, endpoint: Endpoint, ms: number | undefined): void {
  if (ms) link.avoidUntil = withHold(link.avoidUntil, { endpoint, ms }, link.now);
}

function onClosed(link: Draft, { socketId, retryAfterMs, ...closed }: Extract<LinkEvent, { type: 'closed' }>): void {
  if (isAttempt(link, socketId) && link.phase !== 'renewing') {
    const { endpoint } = attemptOf(link);
    hold(link, endpoint, retryAfterMs);
    if (closed.isLegacyCnapi) link.legacyEndpoints = [...link.legacyEndpoints, endpointKey(endpoint)];
    return attemptFailed(link);
  }
  if (isSession(link, socketId)) sessionLost(link);
}

function onGoaway(link: Draft, event: Extract<LinkEvent, { type: 'goaway' }>): void {
  if (isAttempt(link, event.socketId) && link.phase !== 'renewing') {
    link.effects.push({ do: 'close', socketId: event.socketId, reason: 'asked to leave' });
    return attemptFailed(link);
  }
  if (!isSession(link, event.socketId) || (event.withinMs === undefined && link.now < link.softFrom)) return;
  if (event.addresses.length > 0) link.known = event.addresses;
  const moving = link.leaveReason !== 'no';
  if (event.withinMs !== undefined) {
    link.leaveReason = 'must';
    link.effects.push({ do: 'arm-departure', socketId: event.socketId, ms: event.withinMs });
  } else if (link.leaveReason !== 'must') {
    link.leaveReason = 'soft';
    link.softFrom = link.now + SOFT_EVERY_MS;
  }
  if (!moving && link.phase === 'live') startRound(link);
}

function onSilent(link: Draft): void {
  if (link.leaveReason !== 'must') link.leaveReason = 'silent';
  if (link.phase === 'live') startRound(link);
}

/**
 * Keeps the session. A hello that was sent may have been accepted already, so its answer is
 * awaited.
 */
function onHeard(link: Draft): void {
  if (link.leaveReason !== 'silent') return;
  link.leaveReason = 'no';
  link.failedRounds = 0;
  if (link.phase === 'connecting') {
    link.effects.push({ do: 'close', socketId: attemptOf(link).socketId, reason: 'not needed any more' });
    link.attempt = undefined;
  }
  if (!link.attempt) enter(link, 'live');
}

/** The wait between rounds is long while all addresses are legacy; a new address ends it. */
function onFound(link: Draft, addresses: readonly Endpoint[]): void {
  if (link.scheme !== 'legacy' || link.phase !== 'waiting' || !namesAnother(addresses, link.known)) return;
  link.known = addresses;
  startRound(link);
}

function onExpired(link: Draft): void {
  switch (link.phase) {
    case 'connecting':
    case 'greeting':
      if (link.phase === 'connecting') link.upgradeTimeoutDoublings += 1;
      link.effects.push({ do: 'close', socketId: attemptOf(link).socketId, reason: 'no answer in time' });
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
    if (held) link.effects.push({ do: 'close', socketId: held.socketId, reason: 'agent stops' });
  }
  link.attempt = undefined;
  link.session = undefined;
  enter(link, 'stopped');
}

/**
 * An attempt that was welcomed took the authority from the session's instance, so that session ends
 * as well.
 */
function attemptFailed(link: Draft): void {
  const session = link.session;
  link.attempt = undefined;
  if (session && link.epoch > session.epoch) {
    link.effects.push({ do: 'close', socketId: session.socketId, reason: 'superseded by a newer session, now lost' });
    noteLoss(link);
    link.leaveReason = 'no';
  }
  nextAddress(link);
}

function leaveSession(link: Draft, socketId: number, reason: string): void {
  if (!isSession(link, socketId)) return;
  link.effects.push({ do: 'close', socketId, reason });
  sessionLost(link);
}

function noteLoss(link: Draft): void {
  link.lost = link.session;
  link.session = undefined;
  link.upgradeTimeoutDoublings = Math.max(link.upgradeTimeoutDoublings, 1);
}

function sessionLost(link: Draft): void {
  const worked = link.session?.steady && link.now - link.session.since >= LASTING_MS;
  if (worked) link.failedRounds = 0;
  noteLoss(link);
  link.leaveReason = 'no';
  if (link.phase !== 'live' && link.phase !== 'waiting') return;
  if (worked) enter(link, 'waiting', link.chance * QUICK_RETRY_MS);
  else giveUpRound(link);
}

function startRound(link: Draft): void {
  link.tried = [];
  link.legacyEndpoints = [];
  link.corrections = 0;
  link.resolvedThisRound = false;
  nextAddress(link);
}

/** Tries each known endpoint, in random order, before any wait. */
function nextAddress(link: Draft): void {
  if (link.session && link.leaveReason === 'no') return enter(link, 'live');
  const candidates = listCandidates(link, link.now);
  const chosen = candidates[Math.floor(link.chance * candidates.length)];
  if (chosen) return connect(link, chosen);
  if (link.session && link.leaveReason === 'soft') {
    link.leaveReason = 'no';
    return enter(link, 'live');
  }
  if (link.resolvedThisRound) return endRound(link);
  enter(link, 'resolving', RESOLVE_WITHIN_MS);
  link.effects.push({ do: 'resolve', timerGeneration: link.timerGeneration });
}

/** All endpoints were tried and none accepted the agent. */
function endRound(link: Draft): void {
  if (link.session || link.scheme === 'legacy' || !shouldFallBack(link)) return giveUpRound(link);
  link.scheme = 'legacy';
  link.effects.push({ do: 'fall-back' });
  giveUpRound(link);
}

/**
 * Full jitter: a random wait below a ceiling that doubles, counted from when an endpoint may be
 * tried. If all addresses are legacy, an agent that uses the legacy protocol waits 30 to 60 s.
 */
function giveUpRound(link: Draft): void {
  const heldMs = heldForMs(link.avoidUntil, link.known, link.now);
  const doubled = Math.min(link.reconnectMaxMs, FIRST_BACKOFF_MS * 2 ** Math.min(link.failedRounds, 20));
  // Retry-After is in whole seconds, so agents that were given the same one are spread.
  const ceiling = heldMs > 0 ? Math.max(RETURN_SPREAD_MS, doubled) : doubled;
  link.attempt = undefined;
  link.failedRounds += 1;
  const isSettled = link.scheme === 'legacy' && areAllLegacy(link);
  enter(link, 'waiting', isSettled ? lookAgainMs(link.chance) : heldMs + link.chance * ceiling);
}

function connect(link: Draft, endpoint: Endpoint): void {
  link.sockets += 1;
  link.tried = [...link.tried, endpointKey(endpoint)];
  link.attempt = { socketId: link.sockets, endpoint };
  enter(link, 'connecting');
  link.effects.push({ do: 'connect', socketId: link.sockets, endpoint });
}

function enter(link: Draft, phase: Phase, withinMs?: number): void {
  link.phase = phase;
  if (phase === 'live') link.upgradeTimeoutDoublings = 0;
  link.timerGeneration += 1;
  if (withinMs !== undefined) arm(link, withinMs);
}

function arm(link: Draft, ms: number): void {
  link.effects.push({ do: 'arm', timerGeneration: link.timerGeneration, ms });
}

const isAttempt = (link: Draft, socketId: number): boolean => link.attempt?.socketId === socketId;

const isSession = (link: Draft, socketId: number): boolean => link.session?.socketId === socketId;

function attemptOf(link: Draft): NonNullable<LinkState['attempt']> {
  if (!link.attempt) throw new LinkTransitionError(link.was, link.event);
  return link.attempt;
}

function must(link: Draft, legal: boolean): void {
  if (!legal) throw new LinkTransitionError(link.was, link.event);
}
