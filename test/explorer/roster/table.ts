/**
 * An instance's session table, rebuilt from a state for one operation, and the effects on
 * connections.
 */

import { type NewSession, type Session, SessionTable } from '../../../lib/control/roster/sessions/session.ts';
import type { LossReason } from '../../../lib/control/roster/status/authority-row.ts';
import { idleSocket } from '../../support/idle-socket.ts';
import {
  type Connection,
  changeConnection,
  changeInstance,
  connectionOf,
  type DownFrame,
  type InstanceState,
  type RosterState,
  SERVER,
  type SessionState,
} from './state.ts';

/** Never called here: the world decides what happens to the connection. */
const socket = idleSocket({ answersProbe: () => Promise.resolve(false) });

export const newSession = ({ epoch, run }: { epoch: number; run: string }): NewSession => ({
  serverUuid: SERVER,
  epoch,
  incarnation: '',
  journalId: '',
  capabilities: new Set(),
  socket,
  run,
  heardAt: 0,
});

export function openTable(state: RosterState, at: number): { table: SessionTable; session: Session | undefined } {
  const { session, registrations, pendings } = state.instances[at] as InstanceState;
  const table = new SessionTable();
  const raiseTo = (registration: number) => {
    while (table.registrations < registration) {
      table.addPending('another');
      table.removePending('another');
    }
  };
  for (const _ of pendings) table.addPending(SERVER);
  raiseTo(session ? session.registration - 1 : registrations);
  const added = session && table.add(newSession(session));
  if (added && session) {
    added.session.isInventoried = session.isInventoried;
    added.session.registration = session.registration;
    raiseTo(registrations);
  }
  return { table, session: added?.session };
}

/**
 * `SessionLosses.lose`: the session ends, and its loss is queued unless one of a higher epoch is.
 */
export function lose(state: RosterState, at: number, reason: LossReason): void {
  const { session, loss } = state.instances[at] as InstanceState;
  if (session === undefined) return;
  end(state, at, session);
  if (loss !== undefined && loss.epoch > session.epoch) return;
  changeInstance(state, at, { loss: { serverUuid: SERVER, run: session.run, epoch: session.epoch, reason } });
}

/** `SessionLosses.supersede`. */
export function supersede(state: RosterState, at: number): void {
  const { session } = state.instances[at] as InstanceState;
  if (session !== undefined) end(state, at, session);
}

function end(state: RosterState, at: number, { socket: name }: SessionState): void {
  const { table, session } = openTable(state, at);
  if (session === undefined || !table.end(session)) return;
  if (table.get(SERVER) === undefined) changeInstance(state, at, { session: undefined });
  const connection = connectionOf(state, name);
  if (connection !== undefined) hangUp(state, connection);
}

/** The instance's end is closed, and sends the reason if it can. */
export function hangUp(state: RosterState, connection: Connection): void {
  if (connection.isAgentOpen && !connection.isCut)
    changeConnection(state, connection, { down: [...connection.down, { type: 'end' }] });
  changeConnection(state, connection, { isInstanceOpen: false, up: [] });
}

export function sayTo(state: RosterState, name: string, frame: DownFrame): void {
  const connection = connectionOf(state, name);
  if (!connection?.isInstanceOpen || !connection.isAgentOpen || connection.isCut) return;
  changeConnection(state, connection, { down: [...connection.down, frame] });
}
