/**
 * The load of the link's figures: a number of agents that greet, send a heartbeat each second,
 * evenly spread, and do nothing else. It sends the same frames, byte for byte, to an instance and
 * to the bare server, and counts the answers. Any agent can fall silent like a stopped process, or
 * be disconnected; the answer says when.
 */
import { WebSocket } from 'ws';
import { capabilitiesOf, catalogueOf } from '../../../lib/agent/catalogue.ts';
import { retryAfterMsIn } from '../../../lib/agent/link/http-request.ts';
import { serverUuidOf } from '../../../lib/agent/simulated/fleet.ts';
import { simulatedSysinfo } from '../../../lib/agent/simulated/simulated-sysinfo.ts';
import { systemRandom } from '../../../lib/platform/random.ts';
import { systemClock as clock } from '../../../lib/platform/time/clock.ts';
import { PROTOCOL_VERSION } from '../../../lib/protocol/limits.ts';
import { encodeFrame, encodeHeartbeat } from '../../../lib/protocol/link/codec.ts';
import { answerQuestions } from '../asked.ts';

export interface ConnectOrder {
  url: string;
  agents: number;
  perSecond: number;
  /**
   * Whether agents send their sysinfo when the instance requests it, so that their servers can be
   * read.
   */
  sendsSysinfo?: boolean;
}

export interface Beats {
  sent: number;
  answered: number;
  /** Connections that were lost without being closed here. */
  lost: number;
}

interface Agent {
  serverUuid: string;
  number: number;
  url: string;
  sendsSysinfo: boolean;
  incarnation: string;
  conn: number;
  socket: WebSocket | undefined;
  /** The epoch of its session; 0 without a session. */
  epoch: number;
  sequence: number;
  beatAt: number;
  /** False after it was silenced or closed on purpose: it does not reconnect. */
  isWanted: boolean;
}

const UNBORN = { socket: undefined, epoch: 0, sequence: 0, beatAt: 0, isWanted: true };

const HEARTBEAT_MS = 1_000;
const TURN_MS = 1;
const CONNECT_STEP_MS = 10;
const REDIAL_MS = 1_000;

const capabilities = capabilitiesOf(catalogueOf({}));
const seed = systemRandom.uuid();
const agents: Agent[] = [];
/** Time from the first dial to the first welcome, for each agent that connected, in ms. */
const arrivalTimes: number[] = [];
const byUuid = new Map<string, Agent>();
const beats: Beats = { sent: 0, answered: 0, lost: 0 };
/** Number of heartbeats that are due but not sent yet; may be a fraction. */
let turned = 0;
let turnedAt = clock.now();
let numbered = 0;

answerQuestions({
  /** Resolves to the uuids when all of them are live. */
  async connect({ url, agents: count, perSecond, sendsSysinfo = false }: ConnectOrder): Promise<string[]> {
    const startedAt = clock.now();
    const arrivals: Promise<Agent>[] = [];
    while (arrivals.length < count) {
      const due = Math.min(count, Math.ceil(((clock.now() - startedAt) / 1000) * perSecond) + 1);
      while (arrivals.length < due) arrivals.push(connect(url, sendsSysinfo));
      await clock.sleep(CONNECT_STEP_MS);
    }
    return (await Promise.all(arrivals)).map(({ serverUuid }) => serverUuid);
  },
  arrivals: (): number[] => arrivalTimes,
  beats: (): Beats => beats,
  /**
   * Resolves to the time of its last heartbeat, on the wall clock. Its connection stays open; it
   * reads and sends nothing.
   */
  silence({ serverUuid }: { serverUuid: string }): number {
    const agent = theAgent(serverUuid);
    agent.isWanted = false;
    agent.socket?.pause();
    return agent.beatAt;
  },
  /** Resolves to the time when its connection was closed, on the wall clock. */
  close({ serverUuid }: { serverUuid: string }): number {
    const agent = theAgent(serverUuid);
    agent.isWanted = false;
    agent.socket?.terminate();
    return clock.wallTime();
  },
});
clock.every(TURN_MS, beatOnTime);

/**
 * Connects an agent, which sends heartbeats from its arrival on: many silent agents would stop
 * admission.
 */
function connect(url: string, sendsSysinfo: boolean): Promise<Agent> {
  const number = ++numbered;
  const serverUuid = serverUuidOf(seed, number);
  const agent: Agent = { serverUuid, number, url, sendsSysinfo, incarnation: systemRandom.uuid(), conn: 0, ...UNBORN };
  const startedAt = clock.now();
  const arrived = new Promise<Agent>((resolve) => dial(agent, () => resolve(agent)));
  return arrived.then(() => {
    arrivalTimes.push(clock.now() - startedAt);
    byUuid.set(serverUuid, agent);
    agents.push(agent);
    return agent;
  });
}

/**
 * Like the real agent it reconnects when it loses its connection, which `lost` counts, and when it
 * is refused, at the time that the answer names.
 */
function dial(agent: Agent, onLive: () => void): void {
  const options = { perMessageDeflate: false, skipUTF8Validation: true };
  const socket = new WebSocket(`${agent.url.replace('http', 'ws')}/agents/${agent.serverUuid}/link`, options);
  agent.socket = socket;
  agent.conn += 1;
  agent.epoch = 0;
  socket.on('open', () => socket.send(helloOf(agent)));
  socket.on('message', (data) => {
    const text = data.toString();
    if (text.startsWith('{"type":"heartbeat"')) beats.answered += 1;
    else if (text.startsWith('{"type":"welcome"')) enter(agent, JSON.parse(text), onLive);
  });
  let pauseMs = REDIAL_MS;
  socket.on('unexpected-response', (_request, response) => {
    pauseMs = Math.max(pauseMs, retryAfterMsIn(response.headers['retry-after']));
    socket.terminate();
  });
  socket.on('error', () => undefined);
  socket.on('close', () => {
    if (!agent.isWanted) return;
    if (agent.epoch > 0) beats.lost += 1;
    clock.after(pauseMs + REDIAL_MS * systemRandom.fraction(), () => dial(agent, onLive));
  });
}

function enter(agent: Agent, welcome: { epoch: number; sendSysinfo?: boolean }, onLive: () => void): void {
  const { socket, serverUuid, number, sendsSysinfo } = agent;
  agent.epoch = welcome.epoch;
  socket?.send(encodeFrame({ type: 'inventory', epoch: welcome.epoch, tasks: [] }));
  if (sendsSysinfo && welcome.sendSysinfo) {
    const sysinfo = simulatedSysinfo({ serverUuid, number, agentVersion: 'bench', sysinfoSize: 'small', bootedAt: 0 });
    socket?.send(encodeFrame({ type: 'sysinfo', digest: 'bench', sysinfo }));
  }
  onLive();
}

function helloOf({ serverUuid, incarnation, conn }: Agent): string {
  return encodeFrame({
    type: 'hello',
    version: PROTOCOL_VERSION,
    capabilities,
    serverUuid,
    incarnation,
    conn,
    journalId: incarnation,
    epoch: 0,
    bootId: 'bench',
    agentVersion: 'bench',
    sysinfoDigest: '',
  });
}

/** A late turn sends the heartbeats that were missed. */
function beatOnTime(): void {
  const now = clock.now();
  turned += Math.min(1, (now - turnedAt) / HEARTBEAT_MS) * agents.length;
  turnedAt = now;
  for (; turned >= 1; turned--) beat();
}

let next = 0;

function beat(): void {
  next = (next + 1) % agents.length;
  const agent = agents[next];
  if (agent === undefined || !agent.isWanted || agent.epoch === 0) return;
  agent.beatAt = clock.wallTime();
  beats.sent += 1;
  agent.socket?.send(encodeHeartbeat(++agent.sequence));
}

function theAgent(serverUuid: string): Agent {
  const agent = byUuid.get(serverUuid);
  if (agent === undefined) throw new Error(`there is no agent ${serverUuid}`);
  return agent;
}
