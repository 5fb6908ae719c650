/**
 * The worlds of instances that leave: lib/control/roster/relocation/drain.ts in steps of a second,
 * over the statement that lets one leave (roster/model.ts). Agents that are asked to move find
 * another instance or do not; callers connect while the listening sockets are open.
 */
import {
  beginDrain,
  type DrainEffect,
  type DrainState,
  type DrainTimes,
  stepDrain,
} from '../../../lib/control/roster/relocation/drain.ts';
import type { Move, World } from '../explorer.ts';
import { drainRun, type Run } from '../roster/model.ts';

const SECOND = 1000;
const TIMES: DrainTimes = { drainAgentsMs: 5000, drainWaitsMs: 8000 };
/** An instance has left by then, whatever its agents and callers do. */
const LONGEST_MS = TIMES.drainWaitsMs + 4000;

export interface LeavingInstance {
  run: string;
  drain: DrainState | undefined;
  isListening: boolean;
  agents: number;
  movingAgents: number;
  unanswered: number;
  /** Whether the instance has asked the database to leave and has no answer yet. */
  isAsking: boolean;
}

export interface LeavingState {
  now: number;
  runs: readonly Run[];
  instances: readonly LeavingInstance[];
  wrong: string | undefined;
  left: Budget;
}

export interface Budget {
  drain: number;
  lostAnswer: number;
  caller: number;
}

export interface Rules {
  stepDrain: typeof stepDrain;
  drainRun: typeof drainRun;
}

export const rules: Rules = { stepDrain, drainRun };

type State = LeavingState;

export interface LeavingBounds {
  name: string;
  agents: number;
  faults: Budget;
}

export function leavingWorld({ name, agents, faults }: LeavingBounds, product: Rules = rules): World<State> {
  const runs = ['A1', 'B1'].map((run) => ({ run, cnapiUuid: run, isLive: true, isDraining: false, beat: 0 }));
  const said = Object.entries(faults).map(([fault, times]) => `${fault} ${times}`);
  return {
    name,
    bounds: `2 instances, ${agents} agents with each, second by second; ${said.join(', ')}`,
    initial: [
      { now: 0, runs, instances: runs.map(({ run }) => instanceOf(run, agents)), wrong: undefined, left: faults },
    ],
    moves: function* (state): Generator<Move<State>> {
      yield { what: 'a second passes', to: second(product, state) };
      for (const at of state.instances.keys()) yield* movesOf(product, state, at);
    },
    keyOf,
    complaintOf: (state) => state.wrong ?? complaintOf(state),
    isEnd: ({ instances }) => instances.every(({ drain }) => drain === undefined || drain.phase === 'left'),
    tell: ({ now, instances }) =>
      [
        `${now / SECOND} s`,
        ...instances.map(({ run, drain, agents: held, movingAgents, isListening }) => {
          return `${run} ${drain?.phase ?? 'serves'} ${held} agents, ${movingAgents} asked to move${isListening ? '' : ', not listening'}`;
        }),
      ].join(' | '),
  };
}

const instanceOf = (run: string, agents: number): LeavingInstance => ({
  run,
  drain: undefined,
  isListening: true,
  agents,
  movingAgents: 0,
  unanswered: 0,
  isAsking: false,
});

const change = (state: State, at: number, fields: Partial<LeavingInstance>): State => ({
  ...state,
  instances: state.instances.with(at, { ...(state.instances[at] as LeavingInstance), ...fields }),
});

const isThere = ({ drain }: LeavingInstance): boolean => drain?.phase !== 'left';

/** The instances that agents can connect to. */
const othersOf = ({ runs, instances }: State, at: number): number =>
  instances.filter((one, index) => {
    const run = runs.find(({ run: of }) => of === one.run);
    return index !== at && isThere(one) && run?.isDraining === false;
  }).length;

function second(product: Rules, before: State): State {
  let state = { ...before, now: before.now + SECOND };
  for (const [at, { drain, agents, unanswered }] of before.instances.entries()) {
    if (drain === undefined || drain.phase === 'left') continue;
    const view = { others: othersOf(before, at), agents, unanswered };
    const step = product.stepDrain(drain, { type: 'tick', view }, state.now, TIMES);
    state = step.effects.reduce(
      (next, effect) => carriedOut(next, at, effect, view.others),
      change(state, at, { drain: step.state }),
    );
  }
  return state;
}

/** The instance knows of others what it last read. */
function carriedOut(state: State, at: number, effect: DrainEffect, others: number): State {
  const { agents, movingAgents, run, drain } = state.instances[at] as LeavingInstance;
  switch (effect.do) {
    case 'announce':
      return change(state, at, { isAsking: true });
    case 'ask-agents': {
      const wrong = others === 0 ? `${run} asks its agents to move, and there is no other instance` : state.wrong;
      return { ...change(state, at, { movingAgents: Math.min(agents, movingAgents + effect.atMost) }), wrong };
    }
    case 'stop-listening': {
      const isLate = state.now - (drain?.beganAt ?? 0) >= TIMES.drainAgentsMs;
      const wrong = agents > 0 && !isLate ? `${run} stops listening with ${agents} agents and time left` : state.wrong;
      return { ...change(state, at, { isListening: false }), wrong };
    }
    case 'end-waits':
      return change(state, at, { unanswered: 0 });
    case 'leave':
      return state;
    default:
      return effect satisfies never;
  }
}

function* movesOf(product: Rules, state: State, at: number): Generator<Move<State>> {
  const one = state.instances[at] as LeavingInstance;
  const { run, drain, isAsking, movingAgents, agents, unanswered, isListening } = one;
  if (!isThere(one)) return;
  if (drain === undefined && state.left.drain > 0) {
    const { state: begun } = beginDrain(state.now);
    const left = { ...state.left, drain: state.left.drain - 1 };
    yield {
      what: `${run} is asked to drain`,
      to: { ...change(state, at, { drain: begun, isAsking: true }), left },
      isFault: true,
    };
  }
  if (isAsking && drain !== undefined) {
    const { runs, answer } = product.drainRun(state.runs, run);
    const answered = product.stepDrain(drain, { type: 'announced', answer }, state.now, TIMES);
    yield {
      what: `${run} gets the answer: ${answer}`,
      to: { ...change(state, at, { drain: answered.state, isAsking: false }), runs },
    };
    if (state.left.lostAnswer > 0) {
      const lost = product.stepDrain(drain, { type: 'unannounced' }, state.now, TIMES);
      const left = { ...state.left, lostAnswer: state.left.lostAnswer - 1 };
      yield {
        what: `${run} may leave, and the answer is lost`,
        to: { ...change(state, at, { drain: lost.state, isAsking: false }), runs, left },
        isFault: true,
      };
    }
  }
  const to = state.instances.findIndex((other, index) => index !== at && isThere(other) && other.isListening);
  if (movingAgents > 0 && to >= 0) {
    const moved = change(state, at, { movingAgents: movingAgents - 1, agents: agents - 1 });
    const taken = change(moved, to, { agents: (state.instances[to]?.agents ?? 0) + 1 });
    yield { what: `an agent moves from ${run} to ${state.instances[to]?.run}`, to: taken };
  }
  if (unanswered > 0) yield { what: `${run} answers`, to: change(state, at, { unanswered: unanswered - 1 }) };
  if (isListening && state.left.caller > 0) {
    const left = { ...state.left, caller: state.left.caller - 1 };
    yield {
      what: `a caller waits at ${run}`,
      to: { ...change(state, at, { unanswered: unanswered + 1 }), left },
      isFault: true,
    };
  }
}

function complaintOf({ runs, instances, now }: State): string | undefined {
  if (runs.every(({ isDraining }) => isDraining)) return 'no instance stays: both may leave';
  const slow = instances.find(({ drain }) => drain && drain.phase !== 'left' && now - drain.beganAt > LONGEST_MS);
  if (slow !== undefined) return `${slow.run} has not left after ${(now - (slow.drain?.beganAt ?? 0)) / SECOND} s`;
  return undefined;
}

/** Only the age of times matters, and only for an instance that leaves. */
function keyOf({ now, runs, instances, left, wrong }: State): string {
  const ages = instances.map(({ drain, ...one }) => {
    if (drain === undefined || drain.phase === 'left')
      return [drain?.phase, one.agents, one.movingAgents > 0, one.isListening, one.unanswered];
    const { phase, beganAt, steppedAt, announcedAt, isAnnouncing, haveWaitsEnded, closedAt } = drain;
    const times = [beganAt, steppedAt, announcedAt, closedAt].map((at) => now - at);
    return [one, phase, isAnnouncing, haveWaitsEnded, times];
  });
  return JSON.stringify([runs.map(({ isDraining }) => isDraining), ages, left, wrong]);
}
