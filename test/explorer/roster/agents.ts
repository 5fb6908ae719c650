/**
 * What may happen at an agent's end: the real `stepLink` of its link, the disk, its clock, its
 * death.
 */

import type { LinkEffect, LinkEvent, LinkState } from '../../../lib/agent/link/link-state.ts';
import type { stepLink } from '../../../lib/agent/link/link-step.ts';
import type { Move } from '../explorer.ts';
import {
  type AgentState,
  type Budget,
  type Connection,
  changeAgent,
  changeConnection,
  copyOf,
  type DownFrame,
  ENDPOINTS,
  newAgent,
  type RosterState,
  type UpFrame,
} from './state.ts';

export type Step = typeof stepLink;

export type AgentMoves = (state: RosterState, at: number) => Move<RosterState>[];

export function agentMoves(linkStep: Step): AgentMoves {
  const on = (state: RosterState, at: number, what: string, event: LinkEvent, isFault = false) =>
    stepsOf(linkStep, state, { at, event }).map((to) => ({ what: `agent ${at}: ${what}`, to, isFault }));

  return (state, at) => {
    const agent = state.agents[at] as AgentState;
    if (agent.isGone) return [];
    const { link } = agent;
    const moves: Move<RosterState>[] = [];
    if (link.phase === 'idle') return on(state, at, 'starts', { type: 'start' });
    if (link.phase === 'resolving')
      moves.push(
        ...on(state, at, 'resolves the name', {
          type: 'resolved',
          timerGeneration: link.timerGeneration,
          addresses: ENDPOINTS,
        }),
      );
    if (link.phase === 'journalling') moves.push(...journalled(state, at, on));
    if (link.phase === 'renewing') moves.push(...renewed(state, at, on));
    if (agent.hasTimer) moves.push(...expired(state, at, on));
    if (link.softFrom > 0 || Object.keys(link.avoidUntil).length > 0) moves.push(timePasses(state, at));
    if (agent.hasDeparture) moves.push(...departed(state, at, on));
    if (link.session) moves.push(...watched(state, at, on));
    for (const connection of state.connections)
      if (connection.agent === at) moves.push(...onConnection(state, connection, on));
    moves.push(...deaths(state, at));
    return moves;
  };
}

type On = (state: RosterState, at: number, what: string, event: LinkEvent, isFault?: boolean) => Move<RosterState>[];

/** The states that an event may lead to, for every random choice that makes a difference. */
function stepsOf(linkStep: Step, state: RosterState, { at, event }: { at: number; event: LinkEvent }): RosterState[] {
  const { link } = state.agents[at] as AgentState;
  const low = linkStep(link, event, { now: 0, chance: 0 });
  const high = linkStep(link, event, { now: 0, chance: 0.75 });
  const first = carryOut(state, at, low);
  const isSame = low.state.attempt?.endpoint.host === high.state.attempt?.endpoint.host;
  return isSame ? [first] : [first, carryOut(state, at, high)];
}

function carryOut(
  before: RosterState,
  at: number,
  { state: link, effects }: { state: LinkState; effects: LinkEffect[] },
): RosterState {
  const state = copyOf(before);
  const agent = before.agents[at] as AgentState;
  const isArmed = effects.some((effect) => effect.do === 'arm');
  const keepsSession = agent.link.session?.socketId === link.session?.socketId;
  changeAgent(state, at, {
    link,
    hasTimer: isArmed || (agent.hasTimer && agent.link.timerGeneration === link.timerGeneration),
    hasDeparture: agent.hasDeparture && keepsSession,
    isSilent: agent.isSilent && keepsSession,
  });
  const [formerly, now] = [agent.link.session?.epoch ?? 0, link.session?.epoch];
  if (now !== undefined && now < formerly) state.wrong = `the epoch of the agent fell from ${formerly} to ${now}`;
  for (const effect of effects) carryOutOne(state, at, effect);
  return state;
}

function carryOutOne(state: RosterState, at: number, effect: LinkEffect): void {
  const { link, incarnation, journal } = state.agents[at] as AgentState;
  switch (effect.do) {
    case 'connect':
      state.connections.push(newConnection(at, effect.socketId, effect.endpoint.host));
      return;
    case 'greet':
      return say(state, at, effect.socketId, {
        type: 'hello',
        claim: {
          incarnation: String(incarnation),
          conn: effect.conn,
          journalId: String(journal.id),
          epoch: link.epoch,
        },
      });
    case 'enter':
      return say(state, at, effect.socketId, { type: 'inventory', epoch: effect.welcome.epoch });
    case 'close':
      return close(state, at, effect.socketId);
    case 'arm-departure':
      return changeAgent(state, at, { hasDeparture: true });
    case 'resolve':
    case 'journal-epoch':
    case 'renew-journal':
    case 'arm':
      // The phase or `hasTimer` says so.
      return;
    case 'fall-back':
      throw new Error('there is no legacy CNAPI in this world');
    default:
      return effect satisfies never;
  }
}

function newConnection(agent: number, socket: number, host: string): Connection {
  return {
    agent,
    socket,
    instance: ENDPOINTS.findIndex((endpoint) => endpoint.host === host),
    isOpened: false,
    up: [],
    down: [],
    isAgentOpen: true,
    isInstanceOpen: true,
    isCut: false,
    state: 'greeting',
    epoch: undefined,
  };
}

const connectionAt = (state: RosterState, agent: number, socket: number): Connection | undefined =>
  state.connections.find((connection) => connection.agent === agent && connection.socket === socket);

function say(state: RosterState, agent: number, socket: number, frame: UpFrame): void {
  const connection = connectionAt(state, agent, socket);
  if (connection?.isInstanceOpen && !connection.isCut)
    changeConnection(state, connection, { up: [...connection.up, frame] });
}

function close(state: RosterState, agent: number, socket: number): void {
  const connection = connectionAt(state, agent, socket);
  if (connection === undefined) return;
  say(state, agent, socket, { type: 'end' });
  changeConnection(
    state,
    connection,
    connection.isOpened ? { isAgentOpen: false, down: [] } : { isAgentOpen: false, isInstanceOpen: false },
  );
}

function journalled(before: RosterState, at: number, on: On): Move<RosterState>[] {
  const { link, journal } = before.agents[at] as AgentState;
  const { attempt } = link;
  if (attempt?.welcome === undefined) throw new Error('nothing to journal');
  const state = copyOf(before);
  changeAgent(state, at, { journal: { ...journal, epoch: attempt.welcome.epoch } });
  return on(state, at, 'has written the epoch to its journal', { type: 'journalled', socketId: attempt.socketId });
}

function renewed(before: RosterState, at: number, on: On): Move<RosterState>[] {
  const state = copyOf(before);
  state.journals += 1;
  changeAgent(state, at, { journal: { id: state.journals, epoch: 0 } });
  return on(state, at, 'begins a new journal', { type: 'renewed' });
}

/** A wait ends at its time; an answer is late only after a defect, or if that is the fault. */
function expired(before: RosterState, at: number, on: On): Move<RosterState>[] {
  const { link } = before.agents[at] as AgentState;
  const event = { type: 'expired', timerGeneration: link.timerGeneration } as const;
  if (link.phase === 'waiting') return on(timePasses(before, at).to, at, 'has waited', event);
  if (link.phase === 'resolving') return [];
  const connection = link.attempt && connectionAt(before, at, link.attempt.socketId);
  const isHopeless = !connection || connection.isCut || !isResponsive(before, connection.instance);
  if (isHopeless) return on(before, at, 'gets no answer', event);
  return spend(before, 'late').flatMap((state) => on(state, at, 'gives up a late answer', event, true));
}

/** Holds and the pause between soft goaways are over. */
function timePasses(before: RosterState, at: number): Move<RosterState> {
  const { link } = before.agents[at] as AgentState;
  const state = copyOf(before);
  if (link.softFrom > 0 || Object.keys(link.avoidUntil).length > 0)
    changeAgent(state, at, { link: { ...link, softFrom: 0, avoidUntil: {} } });
  return { what: `agent ${at}: time passes`, to: state };
}

/** The time suffices for a round of addresses, unless that is the fault. */
function departed(before: RosterState, at: number, on: On): Move<RosterState>[] {
  const { link } = before.agents[at] as AgentState;
  if (!link.session) return [];
  const event = { type: 'departure', socketId: link.session.socketId } as const;
  if (link.phase === 'waiting') return on(before, at, 'reaches the time to leave', event);
  return spend(before, 'late').flatMap((state) => on(state, at, 'reaches the time to leave', event, true));
}

function watched(before: RosterState, at: number, on: On): Move<RosterState>[] {
  const { link, isSilent } = before.agents[at] as AgentState;
  const socket = link.session?.socketId ?? 0;
  const connection = connectionAt(before, at, socket);
  const isQuiet = !connection || connection.isCut || !isResponsive(before, connection.instance);
  const state = copyOf(before);
  changeAgent(state, at, { isSilent: !isSilent });
  if (!isQuiet)
    return isSilent ? on(state, at, 'receives from the instance again', { type: 'heard', socketId: socket }) : [];
  if (!isSilent) return on(state, at, 'receives nothing', { type: 'silent', socketId: socket });
  return on(state, at, 'has received nothing for twice as long', { type: 'dead', socketId: socket });
}

function onConnection(before: RosterState, connection: Connection, on: On): Move<RosterState>[] {
  const { agent, socket, instance, down } = connection;
  if (!connection.isAgentOpen) return [];
  if (!connection.isOpened) return dialled(before, connection, on);
  const [frame, ...rest] = down;
  if (frame === undefined || connection.isCut) return [];
  const state = copyOf(before);
  changeConnection(state, connection, frame.type === 'end' ? { down: rest, isAgentOpen: false } : { down: rest });
  const event = eventOf(frame, { socket, instance });
  return on(state, agent, `receives ${frame.type} from ${ENDPOINTS[instance]?.host}`, event);
}

function dialled(before: RosterState, connection: Connection, on: On): Move<RosterState>[] {
  const { agent, socket, instance } = connection;
  const state = copyOf(before);
  const host = ENDPOINTS[instance]?.host;
  if (!isResponsive(before, instance)) {
    const isBegun = before.agents[agent]?.hasTimer;
    const isBacklogged = before.instances[instance]?.isFrozen;
    if (isBacklogged) return isBegun ? [] : on(state, agent, `dials ${host}`, { type: 'begun', socketId: socket });
    changeConnection(state, connection, { isAgentOpen: false, isInstanceOpen: false });
    return on(state, agent, `is refused by ${host}`, { type: 'closed', socketId: socket, reason: 'refused' });
  }
  changeConnection(state, connection, { isOpened: true });
  return on(state, agent, `opens a connection to ${host}`, { type: 'begun', socketId: socket }).flatMap(({ to }) =>
    on(to, agent, `opens a connection to ${host}`, { type: 'opened', socketId: socket }),
  );
}

function eventOf(frame: DownFrame, { socket, instance }: Pick<Connection, 'socket' | 'instance'>): LinkEvent {
  switch (frame.type) {
    case 'welcome':
      return { type: 'welcomed', socketId: socket, welcome: welcome(frame.epoch, ENDPOINTS[instance]?.uuid ?? '') };
    case 'refuse':
      return { type: 'refused', socketId: socket, refusal: { ...frame, message: '' } };
    case 'goaway':
      return { type: 'goaway', socketId: socket, withinMs: frame.withinMs, addresses: [...ENDPOINTS] };
    case 'end':
      return { type: 'closed', socketId: socket, reason: 'the other side ended it' };
    default:
      return frame satisfies never;
  }
}

const welcome = (epoch: number, cnapiUuid: string) => ({
  type: 'welcome' as const,
  version: 1,
  capabilities: [],
  cnapiUuid,
  epoch,
  heartbeatMs: 1000,
  serverSilenceMs: 3000,
  reconnectMaxMs: 8000,
  maxFrameBytes: 65_536,
  addresses: [],
  sendSysinfo: false,
});

function deaths(before: RosterState, at: number): Move<RosterState>[] {
  const { journal } = before.agents[at] as AgentState;
  const restart = (state: RosterState, left: AgentState['journal'], what: string) => {
    state.incarnations += 1;
    state.agents[at] = newAgent(state.incarnations, left);
    for (const connection of [...state.connections]) if (connection.agent === at) close(state, at, connection.socket);
    return { what: `agent ${at}: ${what}`, to: state, isFault: true };
  };
  const died = (state: RosterState) => {
    changeAgent(state, at, { isGone: true, hasTimer: false, hasDeparture: false });
    for (const connection of [...state.connections])
      if (connection.agent === at) changeConnection(state, connection, { isCut: true, up: [], down: [] });
    return { what: `agent ${at}: its machine dies`, to: state, isFault: true };
  };
  return [
    ...spend(before, 'crashAgent').map((state) => restart(state, journal, 'restarts')),
    ...spend(before, 'loseJournal').map((state) => {
      state.journals += 1;
      return restart(state, { id: state.journals, epoch: 0 }, 'restarts without its journal');
    }),
    ...(journal.epoch > 0 ? spend(before, 'rollBackJournal') : []).map((state) =>
      restart(state, { ...journal, epoch: 0 }, 'restarts with an old copy of its journal'),
    ),
    ...spend(before, 'dieAgent').map(died),
  ];
}

/** A copy with one less of that fault left; none when there is none left. */
export function spend(before: RosterState, fault: keyof Budget): RosterState[] {
  if (before.left[fault] === 0) return [];
  const state = copyOf(before);
  state.left[fault] -= 1;
  return [state];
}

export function isResponsive({ instances }: RosterState, at: number): boolean {
  const instance = instances[at];
  return instance?.isUp === true && !instance.isFrozen;
}
