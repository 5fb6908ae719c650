/**
 * What may happen at an instance: it takes frames, its statements reach the row and come back, it
 * decides, polls, freezes and dies. The session table, the decision about a hello and the ownerless
 * rows are the product's; the statements are model.ts; the order of things is that of
 * connection.ts, link-server.ts, authority.ts, session-losses.ts, reaper.ts, silence-detector.ts.
 */
import type { LossReason } from '../../../lib/control/roster/status/authority-row.ts';
import type { Move } from '../explorer.ts';
import { acceptMoves } from './accepts.ts';
import { isResponsive, spend } from './agents.ts';
import { declareLapsed, insertRun, isPolled, recordInventory, type recordLoss, renewRun } from './model.ts';
import type { Rules } from './rules.ts';
import {
  type Connection,
  changeConnection,
  changeInstance,
  connectionName,
  connectionOf,
  copyOf,
  ENDPOINTS,
  type InstanceState,
  newInstance,
  type PolledHeld,
  type RosterState,
  SERVER,
} from './state.ts';
import { hangUp, lose, openTable, sayTo, supersede } from './table.ts';

export function instanceMoves(rules: Rules, state: RosterState, at: number): Move<RosterState>[] {
  const instance = state.instances[at] as InstanceState;
  const name = ENDPOINTS[at]?.host;
  const moves = [...deaths(state, at), ...declarations(state, at)];
  if (isResponsive(state, at)) {
    moves.push(...frames(rules, state, at));
    moves.push(...acceptMoves(rules, state, at));
    moves.push(...sessionLosses(rules, state, at), ...silences(state, at), ...goaways(state, at));
    moves.push(...renewals(rules, state, at), ...polls(rules, state, at));
    if (!instance.mayMarkOthersUnknown) {
      const to = copyOf(state);
      changeInstance(to, at, { mayMarkOthersUnknown: true });
      moves.push({ what: 'has been healthy for long enough', to });
    }
  }
  return moves.map((move) => ({ ...move, what: `instance ${name}: ${move.what}` }));
}

function frames(rules: Rules, before: RosterState, at: number): Move<RosterState>[] {
  return before.connections.flatMap((connection) => {
    if (connection.instance !== at || !connection.isInstanceOpen) return [];
    const [frame, ...rest] = connection.up;
    if (frame === undefined || connection.isCut) return [];
    const state = copyOf(before);
    changeConnection(state, connection, { up: rest });
    if (frame.type === 'end') hungUp(state, connection);
    else if (frame.type === 'hello') {
      changeConnection(state, connection, { state: 'accepting' });
      const { pendings } = state.instances[at] as InstanceState;
      const fresh = { replaces: null, stage: 'asked', written: undefined, target: undefined } as const;
      changeInstance(state, at, {
        pendings: [...pendings, { connection: connectionName(connection), claim: frame.claim, ...fresh }],
      });
    } else {
      changeConnection(state, connection, { state: 'live' });
      confirmInventory(rules, state, connection);
    }
    return [{ what: `takes ${frame.type} of agent ${connection.agent}`, to: state }];
  });
}

/** The socket is gone; its session, if still live, is lost. */
function hungUp(state: RosterState, connection: Connection): void {
  const { session } = state.instances[connection.instance] as InstanceState;
  changeConnection(state, connection, { isInstanceOpen: false });
  if (session?.socket === connectionName(connection)) lose(state, connection.instance, 'closed');
}

function confirmInventory(rules: Rules, state: RosterState, connection: Connection): void {
  const { session } = state.instances[connection.instance] as InstanceState;
  const held = session?.socket === connectionName(connection) ? session : undefined;
  const row = recordInventory(state.row, held ?? { run: '', epoch: connection.epoch ?? 0 });
  if (held === undefined) return;
  if (row === undefined) return rules.closesDisowned ? supersede(state, connection.instance) : undefined;
  state.row = row;
  changeInstance(state, connection.instance, { session: { ...held, isInventoried: true } });
}

/**
 * The statement; then its answer arrives, or (the fault) does not, and the session loss is kept for
 * another attempt.
 */
function sessionLosses(rules: Rules, before: RosterState, at: number): Move<RosterState>[] {
  const { loss } = before.instances[at] as InstanceState;
  if (loss === undefined) return [];
  const written = (state: RosterState) => {
    apply(state, rules.recordLoss(state.row, loss));
    return state;
  };
  const done = written(copyOf(before));
  changeInstance(done, at, { loss: undefined });
  const what = `writes the loss of the session under epoch ${loss.epoch}`;
  return [
    { what, to: done },
    ...spend(before, 'lostAnswer').map((state) => ({
      what: `${what}, and the answer is lost`,
      to: written(state),
      isFault: true,
    })),
  ];
}

function apply(state: RosterState, row: ReturnType<typeof recordLoss>): void {
  if (row === undefined) return;
  state.row = row;
  state.sessionLosses += 1;
}

/** A cut connection is silent. Another one is given up only as a fault. */
function silences(before: RosterState, at: number): Move<RosterState>[] {
  return before.connections.flatMap((connection) => {
    if (connection.instance !== at || !connection.isInstanceOpen || !connection.isOpened) return [];
    const { session } = before.instances[at] as InstanceState;
    const isSession = session?.socket === connectionName(connection);
    const isReceiving = !connection.isCut;
    if (isReceiving && connection.state !== 'awaiting-inventory') return [];
    const states = isReceiving ? spend(before, 'late') : [copyOf(before)];
    return states.map((state) => {
      const reason: LossReason = isReceiving ? 'no-inventory' : 'silent';
      if (isSession) lose(state, at, reason);
      else hangUp(state, connection);
      return { what: `gives up agent ${connection.agent}: ${reason}`, to: state, isFault: isReceiving };
    });
  });
}

function goaways(before: RosterState, at: number): Move<RosterState>[] {
  const { session } = before.instances[at] as InstanceState;
  if (!session?.isInventoried) return [];
  return spend(before, 'goaway').flatMap((spent) =>
    [undefined, 1000].map((withinMs) => {
      const state = copyOf(spent);
      sayTo(state, session.socket, { type: 'goaway', ...(withinMs === undefined ? {} : { withinMs }) });
      return { what: `sends its agent a ${withinMs === undefined ? 'soft ' : ''}goaway`, to: state, isFault: true };
    }),
  );
}

/**
 * An instance that was found dead continues under a new run, followed by the rows of sessions that
 * it has heard from since.
 */
function renewals(rules: Rules, before: RosterState, at: number): Move<RosterState>[] {
  const { run, session } = before.instances[at] as InstanceState;
  const mine = before.runs.find((one) => one.run === run);
  if (!mine?.isLive) {
    const state = copyOf(before);
    const newRun = nextRun(before, at);
    state.runs = insertRun(before.runs, { run: newRun, cnapiUuid: ENDPOINTS[at]?.uuid ?? '' });
    changeInstance(state, at, { run: newRun, mayMarkOthersUnknown: false });
    return [{ what: `takes the new run ${newRun}`, to: state }];
  }
  if (session === undefined || session.run === run || connectionOf(before, session.socket)?.isCut) return [];
  const state = copyOf(before);
  const row = renewRun(before.row, run, session);
  if (row === undefined) {
    if (rules.closesDisowned) supersede(state, at);
  } else {
    state.row = row;
    const { table, session: held } = openTable(state, at);
    if (held !== undefined) table.moveToRun(held, run);
    const registrations = table.registrations;
    changeInstance(state, at, { session: { ...session, run, registration: registrations }, registrations });
  }
  return [{ what: 'moves its session under its new run', to: state }];
}

const nextRun = ({ runs }: RosterState, at: number): string => {
  const mine = runs.filter(({ cnapiUuid }) => cnapiUuid === ENDPOINTS[at]?.uuid);
  return `${ENDPOINTS[at]?.uuid}${mine.length + 1}`;
};

/**
 * A poll, answered at once or (the fault: late) with an old state; then due changes are written.
 */
function polls(rules: Rules, before: RosterState, at: number): Move<RosterState>[] {
  const { polled, deciding } = before.instances[at] as InstanceState;
  const moves: Move<RosterState>[] = [];
  if (deciding.length > 0) {
    const state = copyOf(before);
    changeInstance(state, at, { deciding: [] });
    for (const held of deciding) apply(state, rules.recordOwnerless(state.row, state.instances[at]?.run ?? '', held));
    return [{ what: 'writes the ownerless rows as unknown', to: state }];
  }
  if (polled !== undefined) {
    const state = copyOf(before);
    comparePoll(rules, state, at);
    return [{ what: 'compares the rows it has read', to: state }];
  }
  for (const state of spend(before, 'slowPoll')) {
    readPoll(state, at);
    moves.push({ what: 'reads the rows, and the answer is slow', to: state, isFault: true });
  }
  const state = copyOf(before);
  readPoll(state, at);
  comparePoll(rules, state, at);
  moves.push({ what: 'polls', to: state });
  return moves;
}

function readPoll(state: RosterState, at: number): void {
  const { run, registrations } = state.instances[at] as InstanceState;
  const { row } = state;
  const rows: PolledHeld[] = isPolled(row, run, state.runs)
    ? [{ serverUuid: SERVER, run: row.run, epoch: row.epoch, isRunning: row.status === 'running' }]
    : [];
  changeInstance(state, at, { polled: { run, sentAt: registrations, rows } });
}

function comparePoll(rules: Rules, state: RosterState, at: number): void {
  const instance = state.instances[at] as InstanceState;
  const { run, polled } = instance;
  changeInstance(state, at, { polled: undefined });
  if (polled === undefined || polled.run !== run) return;
  const mine = polled.rows.find((row) => row.run === run);
  const { session } = instance;
  if (session?.run === run && (session.registration <= polled.sentAt || rules.ignoresRegistration)) {
    const isOwn = mine?.epoch === session.epoch && mine.isRunning;
    if (!isOwn && rules.closesDisowned) supersede(state, at);
  }
  const ownerless = polled.rows.filter((row) => rules.isOwnerless(state.instances[at] as InstanceState, row));
  const known = rules.ownerlessAtLastPoll(instance.ownerlessRow);
  const due = known.read(ownerless.map(({ serverUuid, epoch, run: of }) => ({ serverUuid, run: of, epoch })));
  const [ownerlessRow] = ownerless;
  changeInstance(state, at, {
    deciding: due.map(({ serverUuid, epoch, run: of }) => ({ serverUuid, run: of, epoch })),
    ownerlessRow: ownerlessRow && { serverUuid: SERVER, run: ownerlessRow.run, epoch: ownerlessRow.epoch },
  });
}

/** Another instance, whose beat nobody increments any more, is declared dead. */
function declarations(before: RosterState, at: number): Move<RosterState>[] {
  if (!isResponsive(before, at)) return [];
  return before.runs.flatMap((one) => {
    const isRaised = before.instances.some(({ run, isUp, isFrozen }) => run === one.run && isUp && !isFrozen);
    if (isRaised || !one.isLive) return [];
    const state = copyOf(before);
    state.runs = declareLapsed(before.runs, one);
    return [{ what: `declares the run ${one.run} dead`, to: state }];
  });
}

function deaths(before: RosterState, at: number): Move<RosterState>[] {
  const { isUp, isFrozen } = before.instances[at] as InstanceState;
  if (!isUp) {
    const state = copyOf(before);
    const run = nextRun(before, at);
    state.runs = insertRun(before.runs, { run, cnapiUuid: ENDPOINTS[at]?.uuid ?? '' });
    state.instances[at] = { ...newInstance(run), mayMarkOthersUnknown: false };
    return [{ what: 'starts again', to: state }];
  }
  if (isFrozen) {
    const state = copyOf(before);
    changeInstance(state, at, { isFrozen: false, mayMarkOthersUnknown: false });
    return [{ what: 'continues', to: state }];
  }
  const frozen = spend(before, 'freeze').map((state) => {
    changeInstance(state, at, { isFrozen: true });
    return { what: 'freezes', to: state, isFault: true };
  });
  const crashed = spend(before, 'crashInstance').map((state) => {
    const { run } = state.instances[at] as InstanceState;
    state.instances[at] = { ...newInstance(run), isUp: false };
    for (const connection of [...state.connections]) if (connection.instance === at) hangUp(state, connection);
    return { what: 'dies', to: state, isFault: true };
  });
  return [...frozen, ...crashed];
}
