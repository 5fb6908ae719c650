/**
 * The connections of a small world of tasks: frames stay in order, and are lost with their
 * connection.
 */
import type { DownFrame, TaskWorldState, UpFrame, Wire } from './state.ts';

type State = TaskWorldState;

/**
 * A session's connection; its instance holds the session from now on, and closes the previous one.
 */
export function open(
  state: State,
  { instance, epoch, journalId }: Pick<Wire, 'instance' | 'epoch' | 'journalId'>,
): State {
  const former = state.instances[instance]?.session;
  const wires = former ? state.wires.filter((wire) => wire.epoch !== former.epoch) : state.wires;
  const session = { epoch, journalId, isInventoried: false };
  const held = {
    ...state.instances[instance],
    session,
    inventory: undefined,
    decided: undefined,
    heard: state.instances[instance]?.heard ?? [],
    orders: state.instances[instance]?.orders ?? [],
  };
  return {
    ...state,
    wires: [...wires, { instance, epoch, journalId, up: [], down: [], isAgentOpen: true }],
    instances: state.instances.with(instance, held),
  };
}

const change = (state: State, epoch: number, to: (wire: Wire) => Wire): State => ({
  ...state,
  wires: state.wires.map((wire) => (wire.epoch === epoch ? to(wire) : wire)),
});

export function say(state: State, epoch: number, frame: UpFrame): State {
  return change(state, epoch, (wire) => (wire.isAgentOpen ? { ...wire, up: [...wire.up, frame] } : wire));
}

export function tellAgent(state: State, epoch: number, frame: DownFrame): State {
  return change(state, epoch, (wire) => (wire.isAgentOpen ? { ...wire, down: [...wire.down, frame] } : wire));
}

/** The agent closes its end. */
export function hangUp(state: State, epoch: number): State {
  return change(state, epoch, (wire) => ({ ...wire, isAgentOpen: false, down: [], up: [...wire.up, { type: 'end' }] }));
}

/** The connection is gone at both ends, and with it the agent's session if it was on this one. */
export function drop(state: State, epoch: number): State {
  const { agent } = state;
  const isNewest = epoch === agent.highest;
  // After the newest session is lost, the one before it has no authority any more and is closed.
  const before =
    isNewest && agent.session !== undefined && agent.session !== epoch ? hangUp(state, agent.session) : state;
  const wires = before.wires.filter((wire) => wire.epoch !== epoch);
  const session = isNewest || agent.session === epoch ? undefined : agent.session;
  return { ...before, wires, agent: { ...agent, session } };
}
