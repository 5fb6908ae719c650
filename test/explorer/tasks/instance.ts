/**
 * What may happen at an instance: the dispatches, reconciler, sweeper and recorder of
 * lib/control/tasks in their order, over the product's decision at an inventory; the statements are
 * model.ts.
 */
import type { KnownTask } from '../../../lib/control/tasks/store/task.ts';
import type { Move } from '../explorer.ts';
import { drop, tellAgent } from './connections.ts';
import { spend } from './fault.ts';
import { isInherited, isToCancel, isToResend, type TaskRow } from './model.ts';
import type { Rules } from './rules.ts';
import {
  type Connection,
  type DownFrame,
  type InstanceState,
  idleInstance,
  runOf,
  type TaskWorldState,
  type UpFrame,
} from './state.ts';

type State = TaskWorldState;
type ReceivedEnd = InstanceState['receivedEnds'][number];

export function instanceMoves(rules: Rules, state: State, at: number): Move<State>[] {
  const moves = [
    ...frames(rules, state, at),
    ...recordings(rules, state, at),
    ...settling(rules, state, at),
    ...dispatches(rules, state, at),
    ...lateOrders(state, at),
    ...crashes(state, at),
  ];
  return moves.map((move) => ({ ...move, what: `${runOf(at)}: ${move.what}` }));
}

const change = (state: State, at: number, fields: Partial<InstanceState>): State => ({
  ...state,
  instances: state.instances.with(at, { ...(state.instances[at] as InstanceState), ...fields }),
});

/** The row of a task that changed; ends are counted. */
export function withTask(state: State, id: string, row: TaskRow | undefined): State {
  if (row === undefined) return state;
  const ends = row.state === 'ended' ? { ...state.ends, [id]: (state.ends[id] ?? 0) + 1 } : state.ends;
  return { ...state, tasks: { ...state.tasks, [id]: row }, ends };
}

const taskOf = (state: State, id: string): TaskRow => state.tasks[id] as TaskRow;

function frames(rules: Rules, state: State, at: number): Move<State>[] {
  return state.connections.flatMap((connection, index) => {
    const [frame, ...up] = connection.up;
    if (frame === undefined || connection.instance !== at) return [];
    const taken = { ...state, connections: state.connections.with(index, { ...connection, up }) };
    const about = 'id' in frame ? ` ${frame.id} a${frame.attempt}` : '';
    return [{ what: `takes ${frame.type}${about}`, to: take(rules, taken, frame, connection) }];
  });
}

function take(rules: Rules, state: State, frame: UpFrame, connection: Connection): State {
  const { instance: at, epoch, journalId } = connection;
  switch (frame.type) {
    case 'end':
      return lost(drop(state, epoch), at, epoch);
    case 'inventory': {
      const { session } = state.instances[at] as InstanceState;
      if (session?.epoch !== epoch) return state;
      if (state.fence.run !== runOf(at) || state.fence.epoch !== epoch) return superseded(state, at, epoch);
      return change(state, at, {
        session: { ...session, isInventoried: true },
        inventory: { epoch, journalId, tasks: frame.tasks },
        decided: undefined,
      });
    }
    case 'accepted':
    case 'started': {
      const row = rules.record(taskOf(state, frame.id), { name: frame.type, attempt: frame.attempt });
      return withTask(state, frame.id, row);
    }
    case 'ended': {
      const { receivedEnds } = state.instances[at] as InstanceState;
      const isKnown = receivedEnds.some(({ id, attempt }) => id === frame.id && attempt === frame.attempt);
      const next = isKnown
        ? state
        : change(state, at, { receivedEnds: [...receivedEnds, { ...frame, connection: epoch }] });
      return rules.recordsFirst ? next : acknowledge(next, { ...frame, connection: epoch });
    }
    default:
      return frame satisfies never;
  }
}

/** The session is over; the server is `unknown` if its epoch is still the current one. */
export function lost(state: State, at: number, epoch: number): State {
  const { session } = state.instances[at] as InstanceState;
  const isMine = state.fence.run === runOf(at) && state.fence.epoch === epoch;
  const judged = isMine ? { ...state, fence: { ...state.fence, isRunning: false } } : state;
  return session?.epoch === epoch
    ? change(judged, at, { session: undefined, inventory: undefined, decided: undefined })
    : judged;
}

function superseded(state: State, at: number, epoch: number): State {
  return change(drop(state, epoch), at, { session: undefined, inventory: undefined, decided: undefined });
}

/** Received ends are recorded, then acknowledged; after a lost answer the end is recorded again. */
function recordings(rules: Rules, state: State, at: number): Move<State>[] {
  const { receivedEnds } = state.instances[at] as InstanceState;
  const [first, ...rest] = receivedEnds;
  if (first === undefined) return [];
  const write = (before: State): State => {
    const { id, attempt, outcome, code } = first;
    const end =
      outcome === 'complete'
        ? ({ name: 'complete', attempt } as const)
        : ({ name: 'failure', attempt, error: { code: code ?? '', message: '' } } as const);
    return withTask(before, id, rules.record(taskOf(before, id), end));
  };
  const what = `records the end of ${first.id} a${first.attempt}`;
  const recorded = change(write(state), at, { receivedEnds: rest });
  return [
    { what, to: rules.recordsFirst ? acknowledge(recorded, first) : recorded },
    ...spend(state, 'lostAnswer').map((left) => ({
      what: `${what}, and the answer is lost`,
      to: write(left),
      isFault: true,
    })),
  ];
}

/** Over the connection that it arrived on; otherwise it is lost. */
function acknowledge(
  state: State,
  { id, attempt, connection }: Pick<ReceivedEnd, 'id' | 'attempt' | 'connection'>,
): State {
  return tellAgent(state, connection, { type: 'ack', id, attempt });
}

/**
 * The database's rows are read and compared with the inventory, and each decision is carried out
 * only if its task is unchanged.
 */
function settling(rules: Rules, state: State, at: number): Move<State>[] {
  const { inventory, decided } = state.instances[at] as InstanceState;
  if (inventory === undefined) return [];
  const { epoch, journalId, tasks } = inventory;
  if (decided === undefined) {
    const decisions = Object.entries(state.tasks).flatMap(([id, task]) => {
      if (!isInherited(task, { epoch })) return [];
      const { attempt, idempotent, uncertain, cancelRequested, isAccepted: wasAccepted, isStarted: hasStarted } = task;
      const read = {
        id,
        attempt,
        idempotent,
        uncertain,
        wasAccepted,
        hasStarted,
        cancelRequested,
        journalId: task.journalId ?? '',
      };
      const known = tasks.find((one) => one.id === id);
      return [{ id, read, decision: rules.decideAtInventory(read, { journalId, known }) }];
    });
    if (decisions.length === 0) return [{ what: 'finds nothing to settle', to: settled(state, at, tasks) }];
    return [{ what: 'reads the tasks of earlier sessions', to: change(state, at, { decided: decisions }) }];
  }
  let next = state;
  let left = 0;
  for (const { id, read, decision } of decided) {
    const claimant = { run: runOf(at), epoch, journalId };
    const row = rules.settle(taskOf(state, id), state.fence, { claimant, read, decision });
    next = withTask(next, id, row);
    if (row === undefined) left += 1;
  }
  const isOver = state.fence.epoch !== epoch;
  const to =
    left === 0
      ? settled(next, at, tasks)
      : change(next, at, isOver ? { inventory: undefined, decided: undefined } : { decided: undefined });
  return [{ what: `settles: ${decided.map(({ id, decision }) => `${id} ${decision.kind}`).join(', ')}`, to }];
}

/** A task that has ended meanwhile and still runs is to stop. */
function settled(before: State, at: number, known: readonly (KnownTask & { id: string })[]): State {
  const state = change(before, at, { inventory: undefined, decided: undefined });
  const epoch = before.instances[at]?.session?.epoch ?? 0;
  const working = known.filter(({ id, state: how }) => how !== 'ended' && taskOf(state, id).state === 'ended');
  const toStop = working.map(({ id, attempt }) => ({ type: 'cancel', id, attempt }) as const);
  const held = known.filter((one) => one.held);
  const toContinue = held.map(({ id, attempt }) => ({ type: 'settled', id, attempt, epoch }) as const);
  return [...toStop, ...toContinue].reduce<State>((next, frame) => tellAgent(next, epoch, frame), state);
}

function dispatches(rules: Rules, state: State, at: number): Move<State>[] {
  const { session } = state.instances[at] as InstanceState;
  if (!session?.isInventoried) return [];
  const connection = state.connections.find(({ epoch }) => epoch === session.epoch);
  if (connection === undefined) return [];
  const claimant = { run: runOf(at), epoch: session.epoch, journalId: session.journalId };
  return Object.entries(state.tasks).flatMap(([id, task]) => {
    const moves: Move<State>[] = [];
    const claimed = rules.claim(task, state.fence, claimant);
    if (claimed !== undefined) {
      const order = { type: 'task', id, attempt: claimed.attempt, epoch: session.epoch } as const;
      moves.push({ what: `claims and sends ${id}`, to: tellAgent(withTask(state, id, claimed), session.epoch, order) });
      for (const left of spend(state, 'lostAnswer'))
        moves.push({ what: `claims ${id}, and the answer is lost`, to: withTask(left, id, claimed), isFault: true });
      moves.push(...late(withTask(state, id, claimed), at, { frame: order, epoch: session.epoch }));
    }
    const { attempt } = task;
    if (isToResend(task, session))
      moves.push(...resends(state, connection, { type: 'task', id, attempt, epoch: session.epoch }));
    if (isToCancel(task, session)) moves.push(...resends(state, connection, { type: 'cancel', id, attempt }));
    return moves;
  });
}

/** The statement has returned it; the process handles it later, if the session still exists. */
function late(state: State, at: number, { frame, epoch }: InstanceState['orders'][number]): Move<State>[] {
  const { id, type } = frame;
  return spend(state, 'lateOrder').map((left) => ({
    what: `has ${type} ${id} to send, and delays it`,
    to: change(left, at, { orders: [...(left.instances[at]?.orders ?? []), { frame, epoch }] }),
    isFault: true,
  }));
}

function lateOrders(state: State, at: number): Move<State>[] {
  const { orders, session } = state.instances[at] as InstanceState;
  const [first, ...rest] = orders;
  if (first === undefined) return [];
  const next = change(state, at, { orders: rest });
  const isForSession = session !== undefined && (first.frame.type !== 'task' || session.epoch === first.epoch);
  const to = isForSession ? tellAgent(next, session.epoch, first.frame) : next;
  return [{ what: `sends ${first.frame.type} ${first.frame.id}, late`, to }];
}

/** When no message about it is in transit any more; before that only as a fault. */
function resends(state: State, connection: Connection, frame: DownFrame): Move<State>[] {
  const { id, type } = frame;
  const isReceived = state.instances[connection.instance]?.receivedEnds.some((one) => one.id === id);
  const isOnItsWay =
    isReceived ||
    connection.down.some((one) => one.id === id && one.type === type) ||
    connection.up.some((one) => 'id' in one && one.id === id);
  const what = type === 'cancel' ? `asks to cancel ${id}` : `sends ${id} again`;
  const isDone = state.agent.journal.tasks.get(id)?.state === 'ended' && type === 'cancel';
  if (!isOnItsWay && !isDone) return [{ what, to: tellAgent(state, connection.epoch, frame) }];
  const sent = spend(state, 'resend').map((left) => ({
    what,
    to: tellAgent(left, connection.epoch, frame),
    isFault: true,
  }));
  return [...sent, ...late(state, connection.instance, { frame, epoch: connection.epoch })];
}

/** The instance restarts at once under the same name and has lost everything it held. */
function crashes(state: State, at: number): Move<State>[] {
  return spend(state, 'crashInstance').map((left) => {
    const mine = left.connections.filter(({ instance }) => instance === at);
    let to = mine.reduce((next, { epoch }) => lost(drop(next, epoch), at, epoch), left);
    to = { ...to, instances: to.instances.with(at, idleInstance()) };
    return { what: 'dies and starts again', to, isFault: true };
  });
}
