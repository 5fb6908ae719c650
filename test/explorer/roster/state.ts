/**
 * The state of a small fleet around one server's row: two instances, the agents with the server's
 * uuid, their connections, the row. Counters (epochs, connection attempts, sockets) are renumbered
 * in their order after each step, so that a world in which agents retry forever is finite.
 */
import type { Endpoint } from '../../../lib/agent/link/endpoints.ts';
import { initialLink, type LinkState } from '../../../lib/agent/link/link-state.ts';
import type {
  HeldRow,
  HelloIdentity,
  HelloRefusal,
  LossReason,
} from '../../../lib/control/roster/status/authority-row.ts';
import type { Row, Run } from './model.ts';

export const SERVER = 'server';
export const ENDPOINTS: readonly (Endpoint & { uuid: string })[] = [
  { host: 'A', port: 1, uuid: 'A' },
  { host: 'B', port: 1, uuid: 'B' },
];

/** A frame, or the end of the data from the other side. */
export type UpFrame = { type: 'hello'; claim: HelloIdentity } | { type: 'inventory'; epoch: number } | { type: 'end' };
export type DownFrame =
  | { type: 'welcome'; epoch: number }
  | { type: 'refuse'; code: HelloRefusal['code']; conn?: number; retryAfterMs?: number }
  | { type: 'goaway'; withinMs?: number }
  | { type: 'end' };

/** One connection with both ends: TCP keeps the order, and loses only data after a cut. */
export interface Connection {
  agent: number;
  socket: number;
  instance: number;
  isOpened: boolean;
  up: readonly UpFrame[];
  down: readonly DownFrame[];
  isAgentOpen: boolean;
  isInstanceOpen: boolean;
  isCut: boolean;
  /** A state of lib/control/link/connection.ts. */
  state: 'greeting' | 'accepting' | 'awaiting-inventory' | 'live';
  /** The epoch of the session it carries at its instance. */
  epoch: number | undefined;
}

export interface AgentState {
  incarnation: number;
  link: LinkState;
  /** The journal on its disk. */
  journal: { id: number; epoch: number };
  hasTimer: boolean;
  hasDeparture: boolean;
  /** Whether the agent is silent. */
  isSilent: boolean;
  /** Dead permanently. */
  isGone: boolean;
}

export interface SessionState {
  epoch: number;
  run: string;
  registration: number;
  isInventoried: boolean;
  /** The name of its connection among the connections. */
  socket: string;
}

/** An accept in progress: to the database, back from it, or probing another incarnation. */
export interface Pending {
  /** `agent:socket` of its connection. */
  connection: string;
  claim: HelloIdentity;
  replaces: string | null;
  stage: 'asked' | 'answered' | 'probing';
  /** The run and the epoch that were written; undefined: nothing was written. */
  written: { run: string; epoch: number } | undefined;
  target: { run: string; epoch: number; incarnation: string } | undefined;
}

export interface InstanceState {
  run: string;
  isUp: boolean;
  isFrozen: boolean;
  /** Whether the instance may change the status of servers that it never held. */
  mayMarkOthersUnknown: boolean;
  session: SessionState | undefined;
  registrations: number;
  pendings: readonly Pending[];
  loss: (HeldRow & { reason: LossReason }) | undefined;
  /** Read and not compared yet: rows as they were, and the registrations when the poll was sent. */
  polled: { run: string; sentAt: number; rows: readonly PolledHeld[] } | undefined;
  ownerlessRow: HeldRow | undefined;
  deciding: readonly HeldRow[];
}

export type PolledHeld = HeldRow & { isRunning: boolean };

export interface Budget {
  cut: number;
  crashInstance: number;
  freeze: number;
  crashAgent: number;
  loseJournal: number;
  rollBackJournal: number;
  dieAgent: number;
  late: number;
  lostAnswer: number;
  slowPoll: number;
  goaway: number;
}

export const NO_FAULTS: Budget = {
  cut: 0,
  crashInstance: 0,
  freeze: 0,
  crashAgent: 0,
  loseJournal: 0,
  rollBackJournal: 0,
  dieAgent: 0,
  late: 0,
  lostAnswer: 0,
  slowPoll: 0,
  goaway: 0,
};

export interface RosterState {
  row: Row | undefined;
  runs: readonly Run[];
  instances: InstanceState[];
  agents: AgentState[];
  connections: Connection[];
  left: Budget;
  /** Applied to the row's current epoch. */
  sessionLosses: number;
  /** What a step did wrong. */
  wrong: string | undefined;
  incarnations: number;
  journals: number;
}

export function firstState({ agents, faults }: { agents: number; faults: Partial<Budget> }): RosterState {
  const runs = ENDPOINTS.map(({ uuid }) => {
    return { run: `${uuid}1`, cnapiUuid: uuid, isLive: true, isDraining: false, beat: 0 };
  });
  return {
    row: undefined,
    runs,
    instances: runs.map(({ run }) => newInstance(run)),
    agents: Array.from({ length: agents }, (_, index) => newAgent(index + 1, { id: index + 1, epoch: 0 })),
    connections: [],
    left: { ...NO_FAULTS, ...faults },
    sessionLosses: 0,
    wrong: undefined,
    incarnations: agents,
    journals: agents,
  };
}

export function newInstance(run: string): InstanceState {
  return {
    run,
    isUp: true,
    isFrozen: false,
    mayMarkOthersUnknown: true,
    session: undefined,
    registrations: 0,
    pendings: [],
    loss: undefined,
    polled: undefined,
    ownerlessRow: undefined,
    deciding: [],
  };
}

export function newAgent(incarnation: number, journal: AgentState['journal']): AgentState {
  const link = initialLink(journal.epoch, 8000);
  return { incarnation, link, journal, hasTimer: false, hasDeparture: false, isSilent: false, isGone: false };
}

export const connectionName = ({ agent, socket }: Pick<Connection, 'agent' | 'socket'>): string => `${agent}:${socket}`;

export const connectionOf = (state: RosterState, name: string): Connection | undefined =>
  state.connections.find((connection) => connectionName(connection) === name);

/** A copy whose parts may be replaced; the parts themselves are shared and never changed. */
export function copyOf(state: RosterState): RosterState {
  return {
    ...state,
    instances: [...state.instances],
    agents: [...state.agents],
    connections: [...state.connections],
    left: { ...state.left },
  };
}

export function changeInstance(state: RosterState, at: number, fields: Partial<InstanceState>): void {
  state.instances[at] = { ...(state.instances[at] as InstanceState), ...fields };
}

export function changeAgent(state: RosterState, at: number, fields: Partial<AgentState>): void {
  state.agents[at] = { ...(state.agents[at] as AgentState), ...fields };
}

/** A connection that is closed at both ends, or that neither end knows any more, is gone. */
export function changeConnection(state: RosterState, connection: Connection, fields: Partial<Connection>): void {
  const at = state.connections.findIndex(
    (other) => other.agent === connection.agent && other.socket === connection.socket,
  );
  if (at < 0) return;
  const changed = { ...(state.connections[at] as Connection), ...fields };
  if (!changed.isAgentOpen && !changed.isInstanceOpen) state.connections.splice(at, 1);
  else state.connections[at] = changed;
}

/**
 * Everything that affects the future: not texts for people, nor the leftovers of a finished round.
 */
export function keyOf(state: RosterState): string {
  const { agents, row, ...others } = state;
  return JSON.stringify([
    others,
    row && [row.run, row.epoch, row.status, row.incarnation, row.conn, row.journalId, row.inventoryEpoch],
    agents.map(({ link, ...agent }) => {
      const { phase, attempt, session, leaveReason, epoch, conn, tried, avoidUntil, lost, softFrom, corrections } =
        link;
      const session_ = session && [session.socketId, session.epoch, session.endpoint.host];
      const attempt_ = attempt && [attempt.socketId, attempt.endpoint.host, attempt.welcome?.epoch];
      const isBetween = attempt === undefined && (phase === 'live' || phase === 'waiting');
      const round = isBetween ? [] : [tried, corrections, link.resolvedThisRound];
      const others_ = [Object.keys(avoidUntil), lost?.cnapiUuid, softFrom, link.known.length];
      return [agent, phase, attempt_, session_, leaveReason, epoch, conn, round, others_];
    }),
  ]);
}

export function tell(state: RosterState): string {
  const { row } = state;
  const rowText = row
    ? `row ${row.run} e${row.epoch} ${row.status} (${row.reason}) i${row.incarnation}c${row.conn} inv${row.inventoryEpoch}`
    : 'no row';
  const instances = state.instances.map(tellInstance);
  const agents = state.agents.map(({ link, journal, isGone, incarnation }) => {
    const session = link.session ? ` with ${link.session.cnapiUuid} e${link.session.epoch}` : '';
    const attempt = link.attempt ? ` trying ${link.attempt.endpoint.host}` : '';
    return `agent i${incarnation} ${isGone ? 'dead' : link.phase}${session}${attempt} journal ${journal.id} e${journal.epoch}`;
  });
  const connections = state.connections.map(describeConnection);
  return [rowText, ...instances, ...agents, ...connections].join(' | ');
}

function tellInstance({ run, isUp, isFrozen, session, pendings, loss, deciding }: InstanceState): string {
  const how = isUp ? (isFrozen ? 'frozen' : '') : 'down';
  const held = session ? ` session e${session.epoch}${session.isInventoried ? '' : ' bare'} run ${session.run}` : '';
  const pending = pendings.map(({ stage, written }) => ` ${stage}${written ? ` e${written.epoch}` : ''}`).join('');
  const sessionLosses = loss ? ` loss ${loss.run} e${loss.epoch}` : '';
  return `${run} ${how}${held}${pending}${sessionLosses}${deciding.length > 0 ? ' deciding' : ''}`;
}

function describeConnection({ agent, instance, isCut, up, down, isAgentOpen, isInstanceOpen }: Connection): string {
  const frames = (list: readonly { type: string }[]) => list.map(({ type }) => type).join('+');
  const ends = `${isAgentOpen ? '' : ' left'}${isInstanceOpen ? '' : ' shut'}${isCut ? ' cut' : ''}`;
  return `${agent}-${ENDPOINTS[instance]?.host} up[${frames(up)}] down[${frames(down)}]${ends}`;
}
