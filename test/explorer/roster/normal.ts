/**
 * Renumbers the counters of a world's state in their order, without gaps: only their order matters,
 * and a new one is above all others. Zero stays zero.
 */
import type { LinkState } from '../../../lib/agent/link/link-state.ts';
import {
  type AgentState,
  type Connection,
  connectionName,
  type DownFrame,
  type InstanceState,
  type Pending,
  type RosterState,
  type SessionState,
  type UpFrame,
} from './state.ts';

/** The name of a connection that no longer exists. */
const GONE = 'gone';

type Renumber = (number: number) => number;

interface Numbers {
  epoch: Renumber;
  conn: Renumber;
  /** The counters of an agent. */
  socket: (agent: number, socket: number) => number;
}

/** Changes `state` in place, and only those parts that belong to the caller. */
export function normalise(state: RosterState): RosterState {
  const epochs = new Ranks();
  const conns = new Ranks();
  collect(state, epochs, conns);
  const sockets = state.agents.map((agent, at) => socketRanks(state, agent, at));
  const hasGaps = epochs.hasGaps || conns.hasGaps || sockets.some((ranks) => ranks.hasGaps);
  if (hasGaps) {
    const socket = (agent: number, number: number) => sockets[agent]?.of(number) ?? 0;
    renumber(state, { epoch: (number) => epochs.of(number), conn: (number) => conns.of(number), socket });
  }
  state.agents = state.agents.map((agent, at) => withoutTime(agent, sockets[at]?.size ?? 0));
  const names = new Set(state.connections.map(connectionName));
  state.instances = state.instances.map((instance) => withRanks(withoutGone(instance, names)));
  return state;
}

class Ranks {
  readonly #numbers = new Set<number>();
  #ranks: Map<number, number> | undefined;

  add(number: number | null | undefined): void {
    if (number) this.#numbers.add(number);
  }

  get size(): number {
    return this.#numbers.size;
  }

  get hasGaps(): boolean {
    return Math.max(0, ...this.#numbers) > this.#numbers.size;
  }

  of(number: number): number {
    if (this.#ranks === undefined) {
      const sorted = [...this.#numbers].sort((one, other) => one - other);
      this.#ranks = new Map(sorted.map((each, at) => [each, at + 1]));
    }
    return this.#ranks.get(number) ?? 0;
  }
}

function collect({ row, agents, connections, instances }: RosterState, epochs: Ranks, conns: Ranks): void {
  epochs.add(row?.epoch);
  epochs.add(row?.inventoryEpoch);
  conns.add(row?.conn);
  for (const { link, journal } of agents) {
    for (const epoch of [journal.epoch, link.epoch, link.session?.epoch, link.attempt?.welcome?.epoch])
      epochs.add(epoch);
    conns.add(link.conn);
  }
  for (const { up, down, epoch } of connections) {
    epochs.add(epoch);
    for (const frame of up) collectUp(frame, epochs, conns);
    for (const frame of down) {
      if (frame.type === 'welcome') epochs.add(frame.epoch);
      else if (frame.type === 'refuse') conns.add(frame.conn);
    }
  }
  for (const instance of instances) collectInstance(instance, epochs, conns);
}

function collectUp(frame: UpFrame, epochs: Ranks, conns: Ranks): void {
  if (frame.type === 'inventory') epochs.add(frame.epoch);
  if (frame.type !== 'hello') return;
  epochs.add(frame.claim.epoch);
  conns.add(frame.claim.conn);
}

function collectInstance(
  { session, loss, polled, ownerlessRow, deciding, pendings }: InstanceState,
  epochs: Ranks,
  conns: Ranks,
): void {
  for (const held of [session, loss, ownerlessRow, ...deciding, ...(polled?.rows ?? [])]) epochs.add(held?.epoch);
  for (const { claim, written, target } of pendings) {
    for (const epoch of [claim.epoch, written?.epoch, target?.epoch]) epochs.add(epoch);
    conns.add(claim.conn);
  }
}

function socketRanks({ connections }: RosterState, { link }: AgentState, agent: number): Ranks {
  const ranks = new Ranks();
  ranks.add(link.attempt?.socketId);
  ranks.add(link.session?.socketId);
  for (const connection of connections) if (connection.agent === agent) ranks.add(connection.socket);
  return ranks;
}

function renumber(state: RosterState, numbers: Numbers): void {
  const { epoch, conn } = numbers;
  const { row } = state;
  if (row !== undefined) {
    const { inventoryEpoch } = row;
    state.row = {
      ...row,
      epoch: epoch(row.epoch),
      inventoryEpoch: epoch(inventoryEpoch),
      conn: row.conn && conn(row.conn),
    };
  }
  state.agents = state.agents.map((agent, at) => ({
    ...agent,
    journal: { ...agent.journal, epoch: epoch(agent.journal.epoch) },
    link: renumberLink(agent.link, at, numbers),
  }));
  state.connections = state.connections.map((connection) => renumberConnection(connection, numbers));
  state.instances = state.instances.map((instance) => renumberInstance(instance, numbers));
}

function renumberLink(link: LinkState, agent: number, { epoch, conn, socket }: Numbers): LinkState {
  const { attempt, session } = link;
  const welcome = attempt?.welcome && { ...attempt.welcome, epoch: epoch(attempt.welcome.epoch) };
  return {
    ...link,
    epoch: epoch(link.epoch),
    conn: conn(link.conn),
    attempt: attempt && { ...attempt, socketId: socket(agent, attempt.socketId), ...(welcome && { welcome }) },
    session: session && { ...session, socketId: socket(agent, session.socketId), epoch: epoch(session.epoch) },
  };
}

function renumberConnection(connection: Connection, numbers: Numbers): Connection {
  return {
    ...connection,
    socket: numbers.socket(connection.agent, connection.socket),
    epoch: connection.epoch && numbers.epoch(connection.epoch),
    up: connection.up.map((frame) => renumberUp(frame, numbers)),
    down: connection.down.map((frame) => renumberDown(frame, numbers)),
  };
}

function renumberUp(frame: UpFrame, { epoch, conn }: Numbers): UpFrame {
  if (frame.type === 'inventory') return { ...frame, epoch: epoch(frame.epoch) };
  if (frame.type === 'end') return frame;
  return { ...frame, claim: { ...frame.claim, epoch: epoch(frame.claim.epoch), conn: conn(frame.claim.conn) } };
}

function renumberDown(frame: DownFrame, { epoch, conn }: Numbers): DownFrame {
  if (frame.type === 'welcome') return { ...frame, epoch: epoch(frame.epoch) };
  return frame.type === 'refuse' && frame.conn ? { ...frame, conn: conn(frame.conn) } : frame;
}

function renumberInstance(instance: InstanceState, numbers: Numbers): InstanceState {
  const { session, loss, polled, ownerlessRow, deciding, pendings } = instance;
  const held = <Held extends { epoch: number }>(one: Held): Held => ({ ...one, epoch: numbers.epoch(one.epoch) });
  return {
    ...instance,
    session: session && { ...held(session), socket: renumberName(session.socket, numbers) },
    loss: loss && held(loss),
    ownerlessRow: ownerlessRow && held(ownerlessRow),
    deciding: deciding.map(held),
    polled: polled && { ...polled, rows: polled.rows.map(held) },
    pendings: pendings.map((pending) => renumberPending(pending, numbers)),
  };
}

function renumberPending(pending: Pending, numbers: Numbers): Pending {
  const { claim, written, target } = pending;
  const { epoch, conn } = numbers;
  return {
    ...pending,
    connection: renumberName(pending.connection, numbers),
    claim: { ...claim, epoch: epoch(claim.epoch), conn: conn(claim.conn) },
    written: written && { ...written, epoch: epoch(written.epoch) },
    target: target && { ...target, epoch: epoch(target.epoch) },
  };
}

/** A connection that is gone has no number any more. */
function renumberName(name: string, { socket }: Numbers): string {
  const [agent, number] = name.split(':').map(Number);
  const renumbered = socket(agent ?? 0, number ?? 0);
  return renumbered === 0 ? GONE : `${agent}:${renumbered}`;
}

/** Counters of ticks, rounds and sockets that are only ever compared for equality. */
function withoutTime(agent: AgentState, sockets: number): AgentState {
  const { link } = agent;
  const { timerGeneration, failedRounds, upgradeTimeoutDoublings } = link;
  if (timerGeneration === 0 && link.sockets === sockets && failedRounds === 0 && upgradeTimeoutDoublings === 0)
    return agent;
  return { ...agent, link: { ...link, timerGeneration: 0, sockets, failedRounds: 0, upgradeTimeoutDoublings: 0 } };
}

/** A number that is free again must not refer to its former owner. */
function withoutGone(instance: InstanceState, names: ReadonlySet<string>): InstanceState {
  const { pendings } = instance;
  if (pendings.every(({ connection }) => names.has(connection) || connection === GONE)) return instance;
  return {
    ...instance,
    pendings: pendings.map((one) => (names.has(one.connection) ? one : { ...one, connection: GONE })),
  };
}

/** Only whether the session was registered before the poll was sent can matter. */
function withRanks(instance: InstanceState): InstanceState {
  const { session, polled } = instance;
  const isLater = session !== undefined && polled !== undefined && session.registration > polled.sentAt;
  const ranks = { registration: isLater ? 2 : 1, sentAt: 1, registrations: isLater ? 2 : 1 };
  return {
    ...instance,
    registrations: ranks.registrations,
    session: session && withRegistration(session, ranks.registration),
    polled: polled && (polled.sentAt === ranks.sentAt ? polled : { ...polled, sentAt: ranks.sentAt }),
  };
}

const withRegistration = (session: SessionState, registration: number): SessionState =>
  session.registration === registration ? session : { ...session, registration };
