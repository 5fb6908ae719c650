/**
 * The worlds of instances that watch: law 4 and the bounds of I1, tick by tick. The counting is the
 * product's (silence, leases, ownerless rows); the statements are the roster's model; the order is
 * that of healthy-timer.ts, silence-detector.ts, membership.ts and reaper.ts.
 */
import { type ObservedLeases, observeLeases } from '../../../lib/control/roster/membership/lease.ts';
import { type OwnerlessRows, observeOwnerless } from '../../../lib/control/roster/sessions/ownerless-rows.ts';
import { countTick, endSilence } from '../../../lib/control/roster/sessions/silence.ts';
import type { Move, World } from '../explorer.ts';
import { declareLapsed, incrementBeat, insertRun, recordLoss, recordOwnerless, renewRun } from '../roster/model.ts';
import {
  type Budget,
  firstState,
  type InstanceState,
  keyOf,
  LIMITS,
  newInstance,
  tell,
  type WatchingState,
} from './state.ts';

type State = WatchingState;
/** How a tick goes for one instance. */
type Mode = 'well' | 'stalled' | 'isolated' | 'outage' | 'down';

export interface Rules {
  countTick: typeof countTick;
  /** A late tick counts nothing. */
  skipsLateTicks: boolean;
  /** A failed read restarts the count. */
  startsAnew: boolean;
  leaseMs: number;
  graceMs: number;
}

export const rules: Rules = {
  countTick,
  skipsLateTicks: true,
  startsAnew: true,
  leaseMs: LIMITS.lease,
  graceMs: LIMITS.grace,
};

export interface WatchingBounds {
  name: string;
  faults: Partial<Budget>;
}

/** Beyond this a longer real duration makes no difference. */
const MOST = { dead: 30, silent: LIMITS.silence, ownerless: LIMITS.grace, unbeaten: LIMITS.lease } as const;

export function watchingWorld({ name, faults }: WatchingBounds, product: Rules = rules): World<State> {
  const said = Object.entries(faults).map(([fault, times]) => `${fault} ${times}`);
  return {
    name,
    bounds: `2 instances, 2 agents, tick by tick; ${said.join(', ')}`,
    initial: [firstState(faults)],
    moves: function* (state): Generator<Move<State>> {
      yield* ticks(product, state);
      yield* arrivals(state);
      yield* deaths(state);
    },
    keyOf,
    complaintOf: ({ wrong, truth, rows }) => wrong ?? lateStatusChange(truth.dead, rows),
    isEnd: ({ agents, rows, instances }) =>
      agents.every(({ isDead, at }, server) => {
        if (isDead) return rows[server]?.status === 'unknown';
        const { sessions, run } = (at === undefined ? undefined : instances[at]) ?? { sessions: [], run: '' };
        return (
          rows[server]?.status === 'running' &&
          rows[server].run === run &&
          sessions.some((one) => one.server === server)
        );
      }),
    tell,
  };
}

/** I1: a dead agent's server is `unknown` in time, unless something else is stopped as well. */
function lateStatusChange(dead: readonly number[], rows: State['rows']): string | undefined {
  const within = LIMITS.lease + LIMITS.grace + LIMITS.startGrace + 4;
  const late = dead.findIndex((ticks, server) => ticks > within && rows[server]?.status === 'running');
  return late < 0 ? undefined : `I1: server ${late} is running ${dead[late]} calm ticks after its agent died`;
}

function* ticks(product: Rules, state: State): Generator<Move<State>> {
  const usual = state.instances.map(({ isUp }): Mode => (isUp ? 'well' : 'down'));
  yield* tick(product, state, usual, { what: 'tick' });
  const { left } = state;
  if (left.outage > 0) {
    const modes = usual.map((mode): Mode => (mode === 'down' ? mode : 'outage'));
    const spent = { ...state, left: { ...left, outage: left.outage - 1 } };
    yield* tick(product, spent, modes, { what: 'tick; the database is unreachable', isFault: true });
  }
  for (const fault of ['stall', 'isolated'] as const) {
    if (left[fault] === 0) continue;
    for (const [at, { isUp, run }] of state.instances.entries()) {
      if (!isUp) continue;
      const modes = usual.with(at, fault === 'stall' ? 'stalled' : 'isolated');
      const spent = { ...state, left: { ...left, [fault]: left[fault] - 1 } };
      const what = `tick; ${run} ${fault === 'stall' ? 'is stalled' : 'has no database'}`;
      yield* tick(product, spent, modes, { what, isFault: true });
    }
  }
}

/** Both parts of a tick, in either order. */
function* tick(
  product: Rules,
  before: State,
  modes: readonly Mode[],
  move: Omit<Move<State>, 'to'>,
): Generator<Move<State>> {
  const places = [...modes.keys()];
  yield { ...move, to: inOrder(product, before, modes, places) };
  yield { ...move, what: `${move.what}; B is first`, to: inOrder(product, before, modes, places.reverse()) };
}

function inOrder(product: Rules, before: State, modes: readonly Mode[], places: readonly number[]): State {
  let state = aged(before, modes);
  for (const at of places) {
    const mode = modes[at];
    if (mode === 'down') continue;
    const instance = state.instances[at] as InstanceState;
    if (mode === 'stalled') state = change(state, at, { stalled: instance.stalled + 1 });
    else state = lived(product, state, { at, hasDatabase: mode === 'well' });
  }
  return state;
}

const change = (state: State, at: number, fields: Partial<InstanceState>): State => ({
  ...state,
  instances: state.instances.with(at, { ...(state.instances[at] as InstanceState), ...fields }),
});

const later = (ticks: number, most: number): number => Math.min(ticks + 1, most);

/** The real durations one tick later. */
function aged(state: State, modes: readonly Mode[]): State {
  const { truth, agents, runs, rows } = state;
  const hasDatabase = !modes.includes('outage');
  const isQuiet = modes.every((mode) => mode === 'well' || mode === 'down');
  const silent = truth.silent.map((ticks, server) => (agents[server]?.isDead ? later(ticks, MOST.silent) : 0));
  const dead = truth.dead.map((ticks, server) =>
    rows[server]?.status === 'running' && agents[server]?.isDead && isQuiet ? later(ticks, MOST.dead) : ticks,
  );
  const ownerless = truth.ownerless.map((ticks, server) => {
    const run = rows[server]?.run;
    const isLive = runs.some((one) => one.run === run && one.isLive);
    const isHeld = state.instances.some(
      (one) => one.isUp && one.run === run && one.sessions.some(({ server: held }) => held === server),
    );
    return isLive && isHeld ? 0 : hasDatabase ? later(ticks, MOST.ownerless) : ticks;
  });
  const unbeaten = Object.fromEntries(
    runs.flatMap(({ run, isLive }) =>
      isLive ? [[run, hasDatabase ? later(truth.unbeaten[run] ?? 0, MOST.unbeaten) : (truth.unbeaten[run] ?? 0)]] : [],
    ),
  );
  return { ...state, truth: { silent, dead, ownerless, unbeaten } };
}

/** One tick of a running instance: it reads input, counts if it may, beats, polls and decides. */
function lived(product: Rules, before: State, { at, hasDatabase }: { at: number; hasDatabase: boolean }): State {
  const instance = before.instances[at] as InstanceState;
  const isLate = instance.stalled > 0;
  const counted = isLate && product.skipsLateTicks ? 0 : 1 + (product.skipsLateTicks ? 0 : instance.stalled);
  let state = counted > 0 && !product.skipsLateTicks ? quieter(product, before, at, counted) : before;
  state = received(state, at);
  if (product.skipsLateTicks && counted > 0) state = quieter(product, state, at, counted);
  const { healthyTicks, watched, ownerlessRows } = state.instances[at] as InstanceState;
  const wasStalled = instance.stalled > LIMITS.silence;
  state = change(state, at, {
    stalled: 0,
    healthyTicks: wasStalled ? 0 : Math.min(LIMITS.startGrace, healthyTicks + counted),
    watched: watched.map((one) => ({ ...one, unchangedMs: Math.min(LIMITS.lease, one.unchangedMs + counted) })),
    ownerlessRows: ownerlessRows.map((one) => ({ ...one, aloneMs: Math.min(LIMITS.grace, one.aloneMs + counted) })),
  });
  return hasDatabase ? written(product, state, at) : unwritten(product, state, at);
}

/** Bytes of live agents have arrived, even while it was stopped. */
function received(state: State, at: number): State {
  const sessions = (state.instances[at] as InstanceState).sessions.map((session) => {
    if (state.agents[session.server]?.isDead || state.agents[session.server]?.at !== at) return session;
    const silence = { quietMs: session.quietMs, isProbed: session.isProbed };
    endSilence(silence);
    return { ...session, ...silence };
  });
  return change(state, at, { sessions });
}

function quieter(product: Rules, before: State, at: number, counted: number): State {
  let state = before;
  for (const session of (before.instances[at] as InstanceState).sessions) {
    const silence = { quietMs: session.quietMs, isProbed: session.isProbed };
    const limits = { probeMs: LIMITS.probe, silenceMs: LIMITS.silence };
    const due = Array.from({ length: counted }, () => product.countTick(silence, 1, limits));
    const { sessions, losses } = state.instances[at] as InstanceState;
    const others = sessions.filter((one) => one.server !== session.server);
    if (!due.includes('silent')) {
      state = change(state, at, {
        sessions: [...others, { ...session, ...silence }].sort((a, b) => a.server - b.server),
      });
      continue;
    }
    const { server, run, epoch } = session;
    const really = state.truth.silent[server] ?? 0;
    const wrong =
      really < LIMITS.silence ? `I1: server ${server} counts as silent after ${really} silent ticks` : state.wrong;
    state = {
      ...change(state, at, { sessions: others, losses: [...losses, { serverUuid: String(server), run, epoch }] }),
      wrong,
    };
    state = {
      ...state,
      agents: state.agents.map((agent, index) => (index === server ? { ...agent, at: undefined } : agent)),
    };
  }
  return state;
}

function unwritten(product: Rules, state: State, at: number): State {
  const { watched, ownerlessRows, failedBeats } = state.instances[at] as InstanceState;
  const observer = observerOf(product, watched);
  const alone = ownerlessOf(product, ownerlessRows);
  if (product.startsAnew) {
    observer.readFailed();
    alone.readFailed();
  }
  return change(state, at, {
    failedBeats: Math.min(2, failedBeats + 1),
    watched: watched.map((one) => ({ ...one, unchangedMs: observer.unchangedMs(one.run) ?? 0 })),
    ownerlessRows: product.startsAnew ? ownerlessRows.map((one) => ({ ...one, aloneMs: 0 })) : ownerlessRows,
  });
}

/** The product's objects, in their previous state. */
function observerOf({ leaseMs }: Rules, watched: InstanceState['watched']): ObservedLeases {
  const observer = observeLeases(leaseMs);
  const oldestFirst = watched.toSorted((one, other) => other.unchangedMs - one.unchangedMs);
  let age = oldestFirst[0]?.unchangedMs ?? 0;
  for (const [index, { unchangedMs }] of oldestFirst.entries()) {
    observer.countHealthyTick(age - unchangedMs);
    age = unchangedMs;
    observer.read(oldestFirst.slice(0, index + 1));
  }
  observer.countHealthyTick(age);
  return observer;
}

function ownerlessOf({ graceMs }: Rules, known: InstanceState['ownerlessRows']): OwnerlessRows {
  const ownerless = observeOwnerless(graceMs);
  const oldestFirst = known.toSorted((one, other) => other.aloneMs - one.aloneMs);
  let age = oldestFirst[0]?.aloneMs ?? 0;
  for (const [index, { aloneMs }] of oldestFirst.entries()) {
    ownerless.countHealthyTick(age - aloneMs);
    age = aloneMs;
    ownerless.read(oldestFirst.slice(0, index + 1));
  }
  ownerless.countHealthyTick(age);
  return ownerless;
}

function written(product: Rules, before: State, at: number): State {
  const { failedBeats } = before.instances[at] as InstanceState;
  let state = beaten(before, at);
  state = looked(product, state, at);
  if (failedBeats >= 2) state = change(state, at, { healthyTicks: 0 });
  state = change(state, at, { failedBeats: 0 });
  state = polled(product, state, at);
  return lossesWritten(state, at);
}

/** `Membership.#beatOnce`; a dead instance gets a new run, and the rows of live sessions follow. */
function beaten(before: State, at: number): State {
  const { run, sessions } = before.instances[at] as InstanceState;
  const runs = incrementBeat(before.runs, run);
  const unbeaten = (state: State, of: string) => ({ ...state.truth, unbeaten: { ...state.truth.unbeaten, [of]: 0 } });
  if (runs !== undefined) return { ...before, runs, truth: unbeaten(before, run) };
  const newRun = `${run.charAt(0)}${Number(run.slice(1)) + 1}`;
  let state: State = { ...before, runs: insertRun(before.runs, { run: newRun, cnapiUuid: run.charAt(0) }) };
  const kept: InstanceState['sessions'][number][] = [];
  for (const session of sessions) {
    const row = renewRun(state.rows[session.server], newRun, session);
    if (row === undefined) state = withoutSession(state, session.server);
    else {
      state = { ...state, rows: state.rows.with(session.server, row) };
      kept.push({ ...session, run: newRun });
    }
  }
  return { ...change(state, at, { run: newRun, healthyTicks: 0, sessions: kept }), truth: unbeaten(state, newRun) };
}

const withoutSession = (state: State, server: number): State => ({
  ...state,
  agents: state.agents.map((agent, index) => (index === server ? { ...agent, at: undefined } : agent)),
});

function looked(product: Rules, before: State, at: number): State {
  const { run, watched } = before.instances[at] as InstanceState;
  const observer = observerOf(product, watched);
  const live = before.runs.filter((one) => one.isLive && one.run !== run);
  const lapsed = observer.read(live.map(({ run: of, beat }) => ({ run: of, beat })));
  let state = change(before, at, {
    watched: live.map(({ run: of, beat }) => ({ run: of, beat, unchangedMs: observer.unchangedMs(of) ?? 0 })),
  });
  for (const reading of lapsed) {
    const really = state.truth.unbeaten[reading.run] ?? 0;
    state = { ...state, runs: declareLapsed(state.runs, reading) };
    if (really < LIMITS.lease)
      state = { ...state, wrong: `${reading.run} is declared dead ${really} ticks after its beat` };
  }
  return state;
}

/** `Reaper.#poll`. */
function polled(product: Rules, before: State, at: number): State {
  const { run, sessions, ownerlessRows, healthyTicks, failedBeats } = before.instances[at] as InstanceState;
  const mayMarkOthersUnknown = failedBeats < 2 && healthyTicks >= LIMITS.startGrace;
  const ownerless = before.rows.flatMap((row, server) => {
    if (row.status !== 'running' || row.run === null) return [];
    const isTheirs = before.runs.some((one) => one.run === row.run && one.isLive);
    const isMine = row.run === run;
    const isAlone = isMine
      ? !sessions.some((one) => one.server === server && one.epoch === row.epoch)
      : !isTheirs && mayMarkOthersUnknown;
    return isAlone ? [{ serverUuid: String(server), run: row.run, epoch: row.epoch }] : [];
  });
  const alone = ownerlessOf(product, ownerlessRows);
  const due = alone.read(ownerless);
  let state = before;
  for (const held of due) {
    const server = Number(held.serverUuid);
    const row = recordOwnerless(state.rows[server], run, held);
    if (row === undefined) continue;
    const really = state.truth.ownerless[server] ?? 0;
    const wrong = really < LIMITS.grace ? `server ${server} counts as ownerless after ${really} ticks` : state.wrong;
    state = { ...state, rows: state.rows.with(server, row), wrong };
  }
  const kept = ownerless.map((held) => {
    const known = ownerlessRows.find(
      (one) => one.serverUuid === held.serverUuid && one.run === held.run && one.epoch === held.epoch,
    );
    return { ...held, aloneMs: known?.aloneMs ?? 0 };
  });
  return change(state, at, { ownerlessRows: kept });
}

function lossesWritten(before: State, at: number): State {
  let state = before;
  for (const loss of (before.instances[at] as InstanceState).losses) {
    const server = Number(loss.serverUuid);
    const row = recordLoss(state.rows[server], { ...loss, reason: 'silent' });
    if (row !== undefined) state = { ...state, rows: state.rows.with(server, row) };
  }
  return change(state, at, { losses: [] });
}

/** An agent without a session connects to a running instance, sooner or later. */
function* arrivals(state: State): Generator<Move<State>> {
  for (const [server, agent] of state.agents.entries()) {
    if (agent.isDead || agent.at !== undefined) continue;
    for (const [at, { isUp, stalled, failedBeats, run, sessions }] of state.instances.entries()) {
      if (!isUp || stalled > 0 || failedBeats > 0 || !state.runs.some((one) => one.run === run && one.isLive)) continue;
      const before = state.rows[server];
      if (before === undefined) continue;
      const row = { ...before, run, epoch: before.epoch + 1, status: 'running' as const };
      const session = { server, run, epoch: row.epoch, quietMs: 0, isProbed: false };
      const others = sessions.filter((one) => one.server !== server);
      const taken = change(state, at, { sessions: [...others, session].sort((a, b) => a.server - b.server) });
      const agents = state.agents.with(server, { ...agent, at });
      const truth = { ...state.truth, ownerless: state.truth.ownerless.with(server, 0) };
      yield {
        what: `agent ${server} connects to ${run}`,
        to: { ...taken, rows: state.rows.with(server, row), agents, truth },
      };
    }
  }
}

function* deaths(state: State): Generator<Move<State>> {
  const { left } = state;
  for (const [at, { isUp, run }] of state.instances.entries()) {
    if (left.crash === 0 || !isUp) continue;
    const agents = state.agents.map((agent) => (agent.at === at ? { ...agent, at: undefined } : agent));
    const gone = change(state, at, { ...newInstance(run, []), isUp: false, healthyTicks: 0 });
    yield { what: `${run} dies`, to: { ...gone, agents, left: { ...left, crash: left.crash - 1 } }, isFault: true };
  }
  for (const [server, agent] of state.agents.entries()) {
    if (left.die === 0 || agent.isDead) continue;
    const agents = state.agents.with(server, { ...agent, isDead: true });
    yield {
      what: `agent ${server} dies`,
      to: { ...state, agents, left: { ...left, die: left.die - 1 } },
      isFault: true,
    };
  }
}
