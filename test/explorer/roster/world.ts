/** The roster's worlds: docs/design/roster.md, invariants I1 and I2, for one server's row. */
import type { Move, World } from '../explorer.ts';
import { agentMoves } from './agents.ts';
import { instanceMoves } from './instances.ts';
import { normalise } from './normal.ts';
import { rules as productRules, type Rules } from './rules.ts';
import { type Budget, connectionOf, firstState, keyOf, type RosterState, tell } from './state.ts';

export interface RosterBounds {
  name: string;
  agents: number;
  faults: Partial<Budget>;
  /** No fault in it is a reason for the server to be `unknown` even for a moment. */
  staysRunning?: boolean;
}

export function rosterWorld(
  { name, agents, faults, staysRunning = false }: RosterBounds,
  rules: Rules = productRules,
): World<RosterState> {
  const ofAgent = agentMoves(rules.step);
  return {
    name,
    bounds: `2 instances, ${agents} agent${agents === 1 ? '' : 's'} of one server; ${sayFaults(faults)}`,
    initial: [normalise(firstState({ agents, faults }))],
    moves: function* (state): Generator<Move<RosterState>> {
      for (const at of state.agents.keys()) for (const move of ofAgent(state, at)) yield normalised(move);
      for (const move of cuts(state)) yield normalised(move);
      for (const at of state.instances.keys())
        for (const move of instanceMoves(rules, state, at)) yield normalised(move);
    },
    keyOf,
    complaintOf: (state) => {
      if (staysRunning && state.row?.status === 'unknown') return 'I1: the server is unknown without a cause';
      return complaints.map((complaint) => complaint(state)).find((said) => said !== undefined);
    },
    isEnd,
    tell,
  };
}

function sayFaults(faults: Partial<Budget>): string {
  const said = Object.entries(faults).map(([fault, times]) => `${fault} ${times}`);
  return said.length === 0 ? 'no faults' : said.join(', ');
}

const normalised = (move: Move<RosterState>): Move<RosterState> => ({ ...move, to: normalise(move.to) });

function cuts(state: RosterState): Move<RosterState>[] {
  if (state.left.cut === 0) return [];
  return state.connections.flatMap((connection, at) => {
    if (connection.isCut || !connection.isOpened) return [];
    const connections = state.connections.with(at, { ...connection, isCut: true, up: [], down: [] });
    const left = { ...state.left, cut: state.left.cut - 1 };
    const what = `the connection of agent ${connection.agent} to ${connection.instance === 0 ? 'A' : 'B'} is cut silently`;
    return [
      {
        what,
        to: { ...state, connections, agents: [...state.agents], instances: [...state.instances], left },
        isFault: true,
      },
    ];
  });
}

type Complaint = (state: RosterState) => string | undefined;

const complaints: readonly Complaint[] = [({ wrong }) => wrong, oneStatusChange, aliveIsRunning, journalledFirst];

function oneStatusChange({ sessionLosses, row }: RosterState): string | undefined {
  return sessionLosses > 1 ? `I2: ${sessionLosses} status changes to unknown under epoch ${row?.epoch}` : undefined;
}

/** I1: its session is at a healthy instance whose run is live, and both ends exist. */
function aliveIsRunning(state: RosterState): string | undefined {
  const { row, runs, instances } = state;
  if (row?.status !== 'unknown') return undefined;
  const isAlive = instances.some(({ run, session, isUp, isFrozen }) => {
    if (session?.epoch !== row.epoch || session.run !== row.run || run !== row.run || !isUp || isFrozen) return false;
    const connection = connectionOf(state, session.socket);
    return (
      connection?.isAgentOpen &&
      connection.isInstanceOpen &&
      !connection.isCut &&
      runs.some((one) => one.run === run && one.isLive)
    );
  });
  return isAlive ? 'I1: the server is unknown while its session is open at a healthy authority' : undefined;
}

function journalledFirst({ agents }: RosterState): string | undefined {
  const early = agents.find(({ link, journal }) => link.session && link.session.epoch > journal.epoch);
  return early && `the agent entered epoch ${early.link.session?.epoch} before it was on its disk`;
}

/**
 * One agent is live with its inventory, the row says so, and nothing contradicts it; or all are
 * dead and the row shows it.
 */
function isEnd(state: RosterState): boolean {
  const { row, agents, instances } = state;
  if (agents.every(({ isGone }) => isGone)) return row === undefined || row.status === 'unknown';
  if (row?.status !== 'running') return false;
  return agents.some(({ link, isGone }, at) => {
    if (isGone || link.phase !== 'live' || link.session?.epoch !== row.epoch) return false;
    const connection = connectionOf(state, `${at}:${link.session.socketId}`);
    const instance = connection && instances[connection.instance];
    const { session, run, loss } = instance ?? {};
    if (connection?.isCut || !connection?.isInstanceOpen || session?.epoch !== row.epoch || loss !== undefined)
      return false;
    return session.isInventoried && session.run === row.run && run === row.run;
  });
}
