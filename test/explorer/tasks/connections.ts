/**
 * The connections of a small world of tasks: frames stay in order, and are lost with their
 * connection.
 */
import type { Connection, DownFrame, TaskWorldState, UpFrame } from './state.ts';

type State = TaskWorldState;

/**
 * A session's connection; its instance holds the session from now on, and closes the previous one.
 */
export function open(
  state: State,
  { instance, epoch, journalId }: Pick<Connection, 'instance' | 'epoch' | 'journalId'>,
): State {
  const former = state.instances[instance]?.session;
  const connections = former
    ? state.connections.filter((connection) => connection.epoch !== former.epoch)
    : state.connections;
  const session = { epoch, journalId, isInventoried: false };
  const held = {
    ...state.instances[instance],
    session,
    inventory: undefined,
    decided: undefined,
    receivedEnds: state.instances[instance]?.receivedEnds ?? [],
    orders: state.instances[instance]?.orders ?? [],
  };
  return {
    ...state,
    connections: [...connections, { instance, epoch, journalId, up: [], down: [], isAgentOpen: true }],
    instances: state.instances.with(instance, held),
  };
}

const change = (state: State, epoch: number, to: (connection: Connection) => Connection): State => ({
  ...state,
  connections: state.connections.map((connection) => (connection.epoch === epoch ? to(connection) : connection)),
});

export function say(state: State, epoch: number, frame: UpFrame): State {
  return change(state, epoch, (connection) =>
    connection.isAgentOpen ? { ...connection, up: [...connection.up, frame] } : connection,
  );
}

export function tellAgent(state: State, epoch: number, frame: DownFrame): State {
  return change(state, epoch, (connection) =>
    connection.isAgentOpen ? { ...connection, down: [...connection.down, frame] } : connection,
  );
}

/** The agent closes its end. */
export function hangUp(state: State, epoch: number): State {
  return change(state, epoch, (connection) => ({
    ...connection,
    isAgentOpen: false,
    down: [],
    up: [...connection.up, { type: 'end' }],
  }));
}

/** The connection is gone at both ends, and with it the agent's session if it was on this one. */
export function drop(state: State, epoch: number): State {
  const { agent } = state;
  const isNewest = epoch === agent.highest;
  // After the newest session is lost, the one before it has no authority any more and is closed.
  const before =
    isNewest && agent.session !== undefined && agent.session !== epoch ? hangUp(state, agent.session) : state;
  const connections = before.connections.filter((connection) => connection.epoch !== epoch);
  const session = isNewest || agent.session === epoch ? undefined : agent.session;
  return { ...before, connections, agent: { ...agent, session } };
}
