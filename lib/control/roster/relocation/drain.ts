/**
 * How an instance leaves in good order, as data. Pure; drainer.ts runs `stepDrain`. Docs:
 * scaling.md.
 *
 *     serving ──asked to drain──▶ announcing ──announced──▶ moving agents
 *     announcing ──it is the last instance, or cannot announce it in the agents' time──▶ left
 *     moving agents ──no agent left, and callers had time to notice──▶ finishing
 *     moving agents ──the agents' time is up──▶ finishing
 *     finishing ──nothing unanswered, or the waits' time is up──▶ left
 *
 * Moving agents: the name is withdrawn from DNS; agents are asked to go elsewhere, at a bounded
 * rate. Finishing: no new connections; waits end at 60 s.
 *
 * While there is no other instance, agents are not asked to go, and new ones are accepted: this
 * instance may be the only one left, and another may come back before the agents' time is up.
 */
import { MAX_GOAWAY_MS } from '../../../protocol/limits.ts';
import type { DrainResult } from '../membership/instance-store.ts';

type DrainPhase = 'announcing' | 'moving' | 'finishing' | 'left';

export interface DrainTimes {
  /** How long the drain waits for agents that cannot move, from its beginning. */
  drainAgentsMs: number;
  /** When the remaining waits are answered, from the beginning of the drain. */
  drainWaitsMs: number;
}

export interface DrainState {
  phase: DrainPhase;
  /** All times are of one monotonic clock, in milliseconds. */
  beganAt: number;
  steppedAt: number;
  /** When it was last announced. Once that is recorded, no instance sends agents here. */
  announcedAt: number;
  /** An announcement has been sent and not been answered yet. */
  isAnnouncing: boolean;
  haveWaitsEnded: boolean;
  /** When the listening sockets were closed. */
  closedAt: number;
}

export type DrainEvent =
  | { type: 'announced'; answer: DrainResult }
  /** The database did not answer. */
  | { type: 'unannounced' }
  | { type: 'tick'; view: DrainView };

interface DrainView {
  /** Instances that agents can go to. */
  others: number;
  agents: number;
  /** Requests without an answer, waits and streams included. */
  unanswered: number;
}

export type DrainEffect =
  | { do: 'announce' }
  /**
   * Ask at most this many agents that were not asked yet. Each must leave within `withinMs`, which
   * ends after the agents' time.
   */
  | { do: 'ask-agents'; atMost: number; withinMs: number }
  /** Accept no new connections; open ones still get their answers. */
  | { do: 'stop-listening' }
  /** Answer all waits with their present state. */
  | { do: 'end-waits' }
  | { do: 'leave' };

type DrainStep = { state: DrainState; effects: DrainEffect[] };

/** A higher rate than the other instances can accept would only fill their queues. */
export const AGENTS_PER_SECOND = 2_000;
/**
 * Time for callers that asked the name server just before the withdrawal to connect: the name
 * server's period, the TTL of its records, and a margin.
 */
export const WITHDRAWN_AFTER_MS = 3_000;
/**
 * An agent that will be left behind must not close its session before this instance has stopped
 * changing statuses; otherwise its server would become `unknown`.
 */
export const AGENTS_GO_LATER_MS = 1_000;
const ANNOUNCE_AGAIN_MS = 1_000;
/** A late tick does not make up for the ticks that it missed. */
const MAX_STEP_MS = 250;
/**
 * Time for callers that connected just before the sockets closed to send their requests, and for
 * idle connections to be closed.
 */
export const LAST_CALLERS_MS = 2_000;
/** Time to write the last answers. */
export const LAST_ANSWERS_MS = 2_000;

export class DrainTransitionError extends Error {
  constructor(state: DrainState, event: DrainEvent) {
    super(`drain: ${event.type} is not possible in phase ${state.phase}`);
    this.name = 'DrainTransitionError';
  }
}

export function beginDrain(now: number): DrainStep {
  const state: DrainState = {
    phase: 'announcing',
    beganAt: now,
    steppedAt: now,
    announcedAt: now,
    isAnnouncing: true,
    haveWaitsEnded: false,
    closedAt: now,
  };
  return { state, effects: [{ do: 'announce' }] };
}

export function stepDrain(state: DrainState, event: DrainEvent, now: number, times: DrainTimes): DrainStep {
  switch (event.type) {
    case 'announced':
    case 'unannounced':
      if (!state.isAnnouncing) throw new DrainTransitionError(state, event);
      return onAnswer({ ...state, isAnnouncing: false }, event, now);
    case 'tick':
      return onTick(state, event.view, now, times);
    default:
      return event satisfies never;
  }
}

/** An instance that is declared dead meanwhile takes a new run and announces the drain again. */
function onAnswer(state: DrainState, event: Exclude<DrainEvent, { type: 'tick' }>, now: number): DrainStep {
  if (state.phase !== 'announcing' || event.type === 'unannounced' || event.answer === 'gone') return stay(state);
  if (event.answer === 'last') return leave(state);
  return stay({ ...state, phase: 'moving', announcedAt: now, steppedAt: now });
}

function onTick(state: DrainState, view: DrainView, now: number, times: DrainTimes): DrainStep {
  switch (state.phase) {
    case 'announcing':
      return onAnnouncing(state, now, times);
    case 'moving':
      return onMoving(state, view, now, times);
    case 'finishing':
      return onFinishing(state, view, now, times);
    case 'left':
      return stay(state);
    default:
      return state.phase satisfies never;
  }
}

function onAnnouncing(state: DrainState, now: number, times: DrainTimes): DrainStep {
  if (now - state.beganAt >= times.drainAgentsMs) return leave(state);
  if (state.isAnnouncing || now - state.announcedAt < ANNOUNCE_AGAIN_MS) return stay(state);
  return { state: { ...state, isAnnouncing: true, announcedAt: now }, effects: [{ do: 'announce' }] };
}

function onMoving(state: DrainState, { agents, others }: DrainView, now: number, times: DrainTimes): DrainStep {
  const leftMs = state.beganAt + times.drainAgentsMs - now;
  const isSeen = now - state.announcedAt >= WITHDRAWN_AFTER_MS;
  if (leftMs <= 0 || (agents === 0 && others > 0 && isSeen)) {
    return { state: { ...state, phase: 'finishing', closedAt: now }, effects: [{ do: 'stop-listening' }] };
  }
  const atMost = Math.floor((Math.min(now - state.steppedAt, MAX_STEP_MS) * AGENTS_PER_SECOND) / 1000);
  if (others === 0) return stay({ ...state, steppedAt: now });
  if (agents === 0 || atMost === 0) return stay(state);
  const withinMs = Math.min(Math.ceil(leftMs) + AGENTS_GO_LATER_MS, MAX_GOAWAY_MS);
  return { state: { ...state, steppedAt: now }, effects: [{ do: 'ask-agents', atMost, withinMs }] };
}

function onFinishing(state: DrainState, { unanswered }: DrainView, now: number, times: DrainTimes): DrainStep {
  const lateMs = now - state.beganAt - times.drainWaitsMs;
  const isSilent = unanswered === 0 && now - state.closedAt >= LAST_CALLERS_MS;
  if (isSilent || lateMs >= LAST_ANSWERS_MS) return leave(state);
  if (lateMs < 0 || state.haveWaitsEnded) return stay(state);
  return { state: { ...state, haveWaitsEnded: true }, effects: [{ do: 'end-waits' }] };
}

function stay(state: DrainState): DrainStep {
  return { state, effects: [] };
}

function leave(state: DrainState): DrainStep {
  return { state: { ...state, phase: 'left' }, effects: [{ do: 'leave' }] };
}
