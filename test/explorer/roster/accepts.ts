/**
 * An accept in progress, as in lib/control/roster/accept/authority.ts: the statement, its answer, a
 * read of the row, a probe.
 */
import { type HelloRefusal, incarnationAlive } from '../../../lib/control/roster/status/authority-row.ts';
import type { Move } from '../explorer.ts';
import { isResponsive, spend } from './agents.ts';
import type { Rules } from './rules.ts';
import {
  changeConnection,
  changeInstance,
  connectionOf,
  copyOf,
  type InstanceState,
  type Pending,
  type RosterState,
} from './state.ts';
import { hangUp, newSession, openTable, sayTo } from './table.ts';

export function acceptMoves(rules: Rules, state: RosterState, at: number): Move<RosterState>[] {
  const { pendings } = state.instances[at] as InstanceState;
  return pendings.flatMap((pending) => {
    switch (pending.stage) {
      case 'asked':
        return asked(rules, state, at, pending);
      case 'answered':
        return answered(rules, state, at, pending);
      case 'probing':
        return probing(state, at, pending);
      default:
        return pending.stage satisfies never;
    }
  });
}

const isOpen = (state: RosterState, { connection }: Pending): boolean =>
  connectionOf(state, connection)?.isInstanceOpen === true;

/**
 * An accept that was not sent is dropped with its socket; one that was sent is executed in any
 * case.
 */
function asked(rules: Rules, before: RosterState, at: number, pending: Pending): Move<RosterState>[] {
  const moves: Move<RosterState>[] = [];
  if (!isOpen(before, pending)) {
    const dropped = copyOf(before);
    replace(dropped, at, pending, undefined);
    moves.push({ what: 'drops a hello whose socket is closed', to: dropped });
  }
  const { state, written } = write(rules, before, at, pending);
  replace(state, at, pending, { ...pending, stage: 'answered', written });
  moves.push({ what: 'sends the accept, and it is carried out', to: state });
  for (const spent of spend(before, 'lostAnswer')) {
    const lost = write(rules, spent, at, pending).state;
    replace(lost, at, pending, undefined);
    refuse(lost, pending, { code: 'no-database', message: '', retryAfterMs: 1000 });
    moves.push({ what: 'sends the accept, and its answer is lost', to: lost, isFault: true });
  }
  return moves;
}

function write(
  rules: Rules,
  before: RosterState,
  at: number,
  { claim, replaces }: Pending,
): { state: RosterState; written: Pending['written'] } {
  const state = copyOf(before);
  const { run } = before.instances[at] as InstanceState;
  const accepted = rules.accept(before.row, run, claim, replaces);
  if (accepted === undefined) return { state, written: undefined };
  state.row = accepted.row;
  const last = before.row?.epoch ?? 0;
  if (accepted.row.epoch <= last) state.wrong = `I2: an accept under epoch ${accepted.row.epoch}, not above ${last}`;
  state.sessionLosses = 0;
  return { state, written: { run, epoch: accepted.row.epoch } };
}

function answered(rules: Rules, before: RosterState, at: number, pending: Pending): Move<RosterState>[] {
  const state = copyOf(before);
  if (pending.written !== undefined) {
    register(state, at, pending);
    replace(state, at, pending, undefined);
    return [{ what: 'learns that it accepted', to: state }];
  }
  const what = 'reads the row that refused the hello';
  const decision = rules.decideHello(before.row && { ...before.row, returnsInMs: 0 }, pending.claim, pending.replaces);
  if (decision.kind === 'refuse') {
    replace(state, at, pending, undefined);
    refuse(state, pending, decision.refusal);
  } else if (decision.kind === 'again') {
    replace(state, at, pending, { ...pending, stage: 'asked' });
  } else {
    const { run, epoch, incarnation } = decision;
    replace(state, at, pending, { ...pending, stage: 'probing', target: { run, epoch, incarnation } });
  }
  return [{ what, to: state }];
}

function register(state: RosterState, at: number, pending: Pending): void {
  const { written } = pending;
  const connection = connectionOf(state, pending.connection);
  if (written === undefined || connection === undefined || !isOpen(state, pending)) return;
  const { table } = openTable(state, at);
  const added = table.add(newSession(written));
  if (added === undefined) return refuse(state, pending, { code: 'superseded', message: '' });
  const { session: former } = state.instances[at] as InstanceState;
  const { epoch, run, registration, isInventoried } = added.session;
  changeInstance(state, at, {
    session: { epoch, run, registration, isInventoried, socket: pending.connection },
    registrations: table.registrations,
  });
  const formerConnection = former && connectionOf(state, former.socket);
  if (added.replaced !== undefined && formerConnection !== undefined) hangUp(state, formerConnection);
  changeConnection(state, connection, { state: 'awaiting-inventory', epoch });
  sayTo(state, pending.connection, { type: 'welcome', epoch });
}

/**
 * The probe goes to the run that has the session; an answer is always possible, and none only if no
 * process could answer.
 */
function probing(before: RosterState, at: number, pending: Pending): Move<RosterState>[] {
  const { target } = pending;
  const isThere = before.instances.some(({ run, session }, index) => {
    if (!isResponsive(before, index) || run !== target?.run || session?.epoch !== target.epoch) return false;
    const connection = connectionOf(before, session.socket);
    return connection?.isAgentOpen === true && !connection.isCut;
  });
  const unanswered = (state: RosterState) => {
    replace(state, at, pending, { ...pending, stage: 'asked', replaces: target?.incarnation ?? null });
    return state;
  };
  if (!isThere) return [{ what: 'gets no answer to its probe', to: unanswered(copyOf(before)) }];
  const answeredState = copyOf(before);
  replace(answeredState, at, pending, undefined);
  refuse(answeredState, pending, incarnationAlive);
  return [
    { what: 'learns that the other incarnation is alive', to: answeredState },
    ...spend(before, 'late').map((state) => ({ what: 'misses the answer', to: unanswered(state), isFault: true })),
  ];
}

function refuse(state: RosterState, { connection: name }: Pending, { code, conn, retryAfterMs }: HelloRefusal): void {
  sayTo(state, name, {
    type: 'refuse',
    code,
    ...(conn === undefined ? {} : { conn }),
    ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
  });
  const connection = connectionOf(state, name);
  if (connection !== undefined) hangUp(state, connection);
}

function replace(state: RosterState, at: number, pending: Pending, by: Pending | undefined): void {
  const { pendings, registrations } = state.instances[at] as InstanceState;
  const index = pendings.findIndex(
    (one) => one.connection === pending.connection && one.claim.conn === pending.claim.conn,
  );
  changeInstance(state, at, {
    pendings: pendings.flatMap((one, place) => (place === index ? (by ?? []) : one)),
    registrations: registrations + 1,
  });
}
