/**
 * How an instance leaves in good order, as data. Pure; `step` is run by drainer.ts. Docs: operating.md, "Scaling".
 *
 *                    told to leave            announced                 no agent left, and callers
 *     serving ──────────────────▶ announcing ──────────▶ moving agents ──────had time to see it────▶ finishing ──────────▶ left
 *                                   │ it is the last one,   │ withdrawn from DNS; agents are told     │ no new connections;  nothing is
 *                                   │ or cannot be said     │ to go elsewhere, at a bounded pace      │ waits end at 60 s    unanswered
 *                                   └──────────────▶ left   └──the agents' time is up──▶ finishing
 *
 * With nobody to go to, agents are not told, and those that come are taken in: one that stands by itself may be all that
 * is left, and a sibling may come back before the agents' time is up.
 */
import { MAX_GOAWAY_MS } from '../wire/limits.ts';
import type { DrainAnswer } from './instance-store.ts';

export type DrainPhase = 'announcing' | 'moving' | 'finishing' | 'left';

export interface DrainTimes {
  /** From the beginning: agents that still have nowhere to go are left behind then. */
  drainAgentsMs: number;
  /** From the beginning: what still waits is answered then. */
  drainWaitsMs: number;
}

export interface DrainState {
  phase: DrainPhase;
  /** All of one monotonic clock, in milliseconds. */
  beganAt: number;
  steppedAt: number;
  /** When it was said last; once it stands, nobody is sent here any more. */
  announcedAt: number;
  /** It is being said, and not known yet whether it stands. */
  isAnnouncing: boolean;
  haveWaitsEnded: boolean;
  /** When the door was closed. */
  closedAt: number;
}

export type DrainEvent =
  | { type: 'announced'; answer: DrainAnswer }
  /** The database did not answer. */
  | { type: 'unannounced' }
  | { type: 'tick'; view: DrainView };

export interface DrainView {
  /** Instances that agents can go to. */
  others: number;
  agents: number;
  /** Requests without an answer, waits and streams among them. */
  unanswered: number;
}

export type DrainEffect =
  | { do: 'announce' }
  /** So many agents that were not told yet; each is to be gone within `withinMs`, which is after they are left behind. */
  | { do: 'tell-agents'; atMost: number; withinMs: number }
  /** Take no new connections; those there are get their answers. */
  | { do: 'close-door' }
  /** Answer all waits as they can be answered. */
  | { do: 'end-waits' }
  | { do: 'leave' };

export type DrainStep = { state: DrainState; effects: DrainEffect[] };

/** Beyond what the others accept at once, telling more only fills their queues. */
export const AGENTS_PER_SECOND = 2_000;
/** Callers that asked the name server just before have come by then: its period, the records' TTL, and a margin. */
export const WITHDRAWN_AFTER_MS = 3_000;
/** An agent that is left behind is not to close its session, as if its server had gone, before this instance knows. */
export const AGENTS_GO_LATER_MS = 1_000;
const ANNOUNCE_AGAIN_MS = 1_000;
/** A late tick does not make up for those that it missed. */
const MAX_STEP_MS = 250;
/** Whoever came through the door just before it closed has said by then what they want, and connections are let go. */
export const LAST_CALLERS_MS = 2_000;
/** For the last answers to be written. */
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

/** One that is declared dead meanwhile takes a new run, and says it anew. */
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
    return { state: { ...state, phase: 'finishing', closedAt: now }, effects: [{ do: 'close-door' }] };
  }
  const atMost = Math.floor((Math.min(now - state.steppedAt, MAX_STEP_MS) * AGENTS_PER_SECOND) / 1000);
  if (others === 0) return stay({ ...state, steppedAt: now });
  if (agents === 0 || atMost === 0) return stay(state);
  const withinMs = Math.min(Math.ceil(leftMs) + AGENTS_GO_LATER_MS, MAX_GOAWAY_MS);
  return { state: { ...state, steppedAt: now }, effects: [{ do: 'tell-agents', atMost, withinMs }] };
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
