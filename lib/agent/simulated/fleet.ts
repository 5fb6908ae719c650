/**
 * Many agents in one process: the real agent's link, journal and tasks on simulated machines, all
 * driven by one ticker. Agents are started at a limited rate. On request, parts of the fleet fail
 * as one agent or its network would.
 */
import { createHash } from 'node:crypto';
import type { Logger } from '../../platform/log.ts';
import type { Random } from '../../platform/random.ts';
import type { Clock, Timer } from '../../platform/time/clock.ts';
import { Agent, type AgentDeps } from '../agent.ts';
import { catalogueOf } from '../catalogue.ts';
import { MemoryJournal } from '../journal/journal-memory.ts';
import type { AgentCredentials } from '../link/credentials.ts';
import type { Endpoint } from '../link/endpoints.ts';
import { Ticker } from '../link/ticker.ts';
import { SettingsKeeper } from '../settings/settings-keeper.ts';
import { DialQueue } from './dial-queue.ts';
import { FaultyConnection } from './faulty-connection.ts';
import { SimulatedMachine } from './simulated-machine.ts';
import type { SysinfoSize } from './simulated-sysinfo.ts';

export interface FleetDeps {
  clock: Clock;
  random: Random;
  log: Logger;
  resolve(): Promise<readonly Endpoint[]>;
  credentials?: AgentCredentials;
  agentVersion: string;
  /** The servers' uuids are derived from it: the same seed gives the same servers. */
  seed: string;
  agents: number;
  /** Number of agents that use only the legacy protocol. */
  legacy?: number;
  agentsPerSecond: number;
  sysinfoSize: SysinfoSize;
  /** The agents connect from this many addresses 127.0.0.x; 0: the system chooses. */
  localAddresses: number;
}

export interface FleetStatus {
  agents: number;
  live: number;
  /** Number of agents that use the legacy protocol. */
  legacy: number;
  frozen: number;
  /** Heartbeats that the present agents have sent so far. */
  heartbeats: number;
  /** Number of live agents by the uuid of their instance. */
  instances: Record<string, number>;
}

/** What a server keeps when its agent, or its machine, starts again. */
interface Kept {
  journal: MemoryJournal;
  settings: SettingsKeeper;
  hostname?: string;
  /** Changes when its machine boots. */
  bootId: string;
}

interface Member extends Kept {
  agent: Agent;
  machine: SimulatedMachine;
  connection: FaultyConnection;
  number: number;
  thaw: Timer | undefined;
}

/** The shell of a simulated machine prints what it is told to run, and succeeds. */
const RESET_PROGRAM = '/usr/sbin/factory-reset';

const SLOTS = 10;
const START_PERIOD_MS = 100;
/** A machine that was told to reboot stops after this time, and then takes as long to start. */
const REBOOT_MS = 1_000;

/** Has the form of a version 4 uuid, so that everything accepts it as a server's uuid. */
export function serverUuidOf(seed: string, number: number): string {
  const hex = createHash('sha256').update(`${seed}/${number}`).digest('hex');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-4${hex.slice(13, 16)}-a${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
}

const keptOf = ({ journal, settings, machine, bootId }: Member): Kept => ({
  ...{ journal, settings, bootId },
  hostname: machine.hostname,
});

export class SimulatedAgents {
  readonly #deps: FleetDeps;
  readonly #ticker: Ticker;
  readonly #dials: DialQueue;
  readonly #members = new Map<string, Member>();
  readonly #stopping = new AbortController();

  constructor(deps: FleetDeps) {
    this.#deps = deps;
    this.#ticker = new Ticker({ clock: deps.clock, slots: SLOTS });
    this.#dials = new DialQueue(deps.clock);
  }

  get uuids(): string[] {
    return [...this.#members.keys()];
  }

  /** Resolves when every agent has been started, or when the fleet is stopped. */
  async start(): Promise<void> {
    const { agents, agentsPerSecond, clock } = this.#deps;
    const perPeriod = Math.max(1, Math.round((agentsPerSecond * START_PERIOD_MS) / 1000));
    for (let number = 0; number < agents; number++) {
      if (this.#stopping.signal.aborted) return;
      this.#add(number);
      if (number % perPeriod === perPeriod - 1) await clock.sleep(START_PERIOD_MS, this.#stopping.signal);
    }
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    const members = [...this.#members.values()];
    for (const member of members) this.#thaw(member);
    await Promise.all(members.map(({ agent }) => agent.stop()));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  status(): FleetStatus {
    const status: FleetStatus = {
      agents: this.#members.size,
      live: 0,
      legacy: 0,
      frozen: 0,
      heartbeats: 0,
      instances: {},
    };
    for (const { agent, thaw } of this.#members.values()) {
      if (thaw) status.frozen += 1;
      if (agent.isLegacyCnapi) status.legacy += 1;
      status.heartbeats += agent.link.heartbeats;
      const session = agent.link.state.session;
      if (!session) continue;
      status.live += 1;
      status.instances[session.cnapiUuid] = (status.instances[session.cnapiUuid] ?? 0) + 1;
    }
    return status;
  }

  /**
   * The agents stand still for `ms`, like stopped processes: their connections stay open, and they
   * send nothing.
   */
  silence(uuids: readonly string[], ms: number): void {
    for (const member of this.#chosen(uuids)) this.#freeze(member, ms);
  }

  /** Resets their connections; the agents reconnect. */
  cut(uuids: readonly string[]): void {
    for (const { connection } of this.#chosen(uuids)) connection.cut();
  }

  /**
   * Simulates a loss of the network without a FIN: the agents send nothing for `ms`, and then
   * reconnect.
   */
  vanish(uuids: readonly string[], ms: number): void {
    for (const member of this.#chosen(uuids)) this.#freeze(member, ms, () => member.connection.cut());
  }

  /** Delays every frame by `ms` in both directions; 0 ends it. */
  slow(uuids: readonly string[], ms: number): void {
    for (const { connection } of this.#chosen(uuids)) connection.slow(ms);
  }

  /**
   * Kills and restarts the agents: each gets a new incarnation, on the same journal or on a new
   * one.
   */
  async restart(uuids: readonly string[], journal: 'kept' | 'lost'): Promise<void> {
    for (const member of this.#chosen(uuids)) {
      this.#thaw(member);
      member.connection.cut();
      member.agent.abandon();
      const { number, bootId } = member;
      this.#add(number, journal === 'kept' ? keptOf(member) : this.#newServer(bootId));
    }
  }

  /** The agent still sends the end of `server_reboot`; then its machine is off for a while. */
  #reboot(serverUuid: string): void {
    const { clock, random } = this.#deps;
    const member = this.#members.get(serverUuid);
    /** Runs it unless the fleet has stopped, or the agent was restarted meanwhile. */
    const later = (work: (member: Member) => void) =>
      clock.after(REBOOT_MS, () => {
        const isPresent = member !== undefined && this.#members.get(serverUuid) === member;
        if (isPresent && !this.#stopping.signal.aborted) work(member);
      });
    later(({ connection, agent }) => {
      agent.abandon();
      connection.cut();
      later((off) => this.#add(off.number, { ...keptOf(off), bootId: random.uuid() }));
    });
  }

  #newServer(bootId: string): Kept {
    const { clock, random, log } = this.#deps;
    const settings = SettingsKeeper.inMemory({ needsSetup: false, log });
    return { journal: new MemoryJournal({ clock, random }), settings, bootId };
  }

  #add(number: number, given?: Kept): void {
    const { clock, random, credentials, agentVersion, sysinfoSize } = this.#deps;
    const serverUuid = serverUuidOf(this.#deps.seed, number);
    const connection = new FaultyConnection(clock, this.#dials, credentials);
    const kept = given ?? this.#newServer(serverUuid);
    const machine = new SimulatedMachine({
      ...{ clock, random, serverUuid, number, agentVersion, sysinfoSize, ...kept },
      allows: ['reboot', 'setup', 'factory-reset'],
      onReboot: () => this.#reboot(serverUuid),
    });
    const parts = { ...kept, number, connection, machine };
    const agent = new Agent(this.#agentDeps(serverUuid, parts));
    this.#members.set(serverUuid, { ...parts, agent, thaw: undefined });
    void agent.start();
  }

  #agentDeps(serverUuid: string, member: Omit<Member, 'agent' | 'thaw'>): AgentDeps {
    const { clock, random, log, resolve, credentials, agentVersion, localAddresses, legacy = 0 } = this.#deps;
    const { number, connection, journal, machine, settings } = member;
    const setupRules = { allowsSetup: true, resetProgram: RESET_PROGRAM };
    const services = { machine, settings, setupRules };
    return {
      clock,
      random,
      log,
      resolve,
      credentials,
      journal,
      serverUuid,
      agentVersion,
      ticker: this.#ticker,
      dial: connection.dial,
      services,
      tasks: catalogueOf(services),
      allowReboot: true,
      protocol: number < legacy ? 'legacy' : 'auto',
      localAddress: localAddresses > 0 ? `127.0.0.${1 + (number % localAddresses)}` : undefined,
    };
  }

  #chosen(uuids: readonly string[]): Member[] {
    return uuids.map((uuid) => this.#members.get(uuid)).filter((member) => member !== undefined);
  }

  #freeze(member: Member, ms: number, before?: () => void): void {
    member.thaw?.cancel();
    this.#ticker.remove(member.agent);
    member.connection.freeze();
    member.thaw = this.#deps.clock.after(ms, () => {
      before?.();
      this.#thaw(member);
    });
  }

  #thaw(member: Member): void {
    if (!member.thaw) return;
    member.thaw.cancel();
    member.thaw = undefined;
    member.connection.thaw();
    if (!this.#stopping.signal.aborted) this.#ticker.add(member.agent);
  }
}
