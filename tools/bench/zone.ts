/**
 * The zone of most figures: instances as separate processes, on a new database, with simulated
 * servers. At the end of the figure, or of the run at the latest, all are killed and the database
 * is dropped.
 */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import pg from 'pg';
import type { FleetStatus } from '../../lib/agent/simulated/fleet.ts';
import { systemRandom } from '../../lib/platform/random.ts';
import { systemClock as clock } from '../../lib/platform/time/clock.ts';
import { ownProgram, Program } from '../processes/program.ts';
import { freePort } from '../start/ports.ts';
import { answersReady } from '../start/readiness.ts';
import type { Foundation } from './foundation.ts';
import { Helper } from './helper.ts';

export interface ZonePlan {
  /** Default 3. */
  instances?: number;
  /** Overrides the instances' defaults, which are the product's. */
  config?: Record<string, unknown>;
}

export interface FleetPlan {
  agents: number;
  /** Number of processes over which the agents are spread. Default: one for each 5,000. */
  processes?: number;
  /** Addresses of instances that they know from the beginning. Default: all. */
  urls?: readonly string[];
  /** Agents started per second, all processes together. Default 1,000. */
  rate?: number;
  sysinfo?: 'small' | 'real';
}

export interface Instance {
  uuid: string;
  url: string;
  /** Answers the questions of the probe: `cpu`, `memory`. */
  helper: Helper;
}

const READY_WITHIN_MS = 60_000;
/** Time limit for all agents to be running: the minimum, and per agent. */
const RUNNING_WITHIN_MS = 180_000;
const RUNNING_WITHIN_MS_EACH = 20;
const STATUS_WITHIN_MS = 10_000;
const AGENTS_A_PROCESS = 5_000;
/** A condition may read the whole roster; more frequent looks would add load. */
const LOOK_MS = 200;

/** Node arguments of the processes that are measured. */
export const probed = ['--expose-gc', '--import', path.join(import.meta.dirname, 'probe.ts')];

export class Zone {
  readonly instances: Instance[] = [];
  readonly fleets: Program[] = [];
  readonly agents: Program[] = [];
  readonly #foundation: Foundation;
  readonly #plan: ZonePlan;
  readonly #signal: AbortSignal;
  readonly #folder: string;
  #databaseUrl = '';
  #added = 0;
  #pool: pg.Pool | undefined;
  #stopped: Promise<void> | undefined;

  constructor(deps: { foundation: Foundation; plan: ZonePlan; signal: AbortSignal; folder: string }) {
    this.#foundation = deps.foundation;
    this.#plan = deps.plan;
    this.#signal = deps.signal;
    this.#folder = deps.folder;
  }

  get databaseUrl(): string {
    return this.#databaseUrl;
  }

  /** Resolves when every instance is ready. */
  async start(): Promise<void> {
    this.#databaseUrl = await this.#foundation.createDatabase();
    this.#pool = new pg.Pool({ connectionString: this.#databaseUrl, max: 3 });
    this.#pool.on('error', () => undefined);
    for (let each = 0; each < (this.#plan.instances ?? 3); each++) await this.addInstance();
  }

  /** Resolves when it is ready. */
  async addInstance(): Promise<Instance> {
    const uuid = systemRandom.uuid();
    const port = await freePort(undefined);
    const name = `instance-${this.#added++}`;
    const file = path.join(this.#folder, `${name}.json`);
    const { redisUrl } = this.#foundation;
    const settings = { cnapiUuid: uuid, port, databaseUrl: this.#databaseUrl, redisUrl, ...this.#plan.config };
    writeFileSync(file, JSON.stringify(settings), { mode: 0o600 });
    const plan = { name, file: 'server.ts', args: ['--config', file], nodeArgs: probed };
    const instance = { uuid, url: `http://127.0.0.1:${port}`, helper: new Helper(plan, this.#logFile(name)) };
    this.instances.push(instance);
    await instance.helper.start();
    await this.#until(() => answersReady(instance.url), READY_WITHIN_MS, `${name} to be ready`);
    return instance;
  }

  /** Kills the instance's process; it is not part of the zone any more. */
  async kill(instance: Instance): Promise<void> {
    this.instances.splice(this.instances.indexOf(instance), 1);
    await instance.helper.stop();
  }

  /** Resolves when the servers of all its agents are running. */
  async addFleet({ agents, urls, rate = 1_000, sysinfo = 'small', ...plan }: FleetPlan): Promise<void> {
    const { processes = Math.ceil(agents / AGENTS_A_PROCESS) } = plan;
    const before = await this.countRunning();
    const known = (urls ?? this.instances.map(({ url }) => url)).flatMap((url) => ['--url', url]);
    for (let each = 0; each < processes; each++) {
      const share = Math.floor(agents / processes) + (each < agents % processes ? 1 : 0);
      const pace = ['--rate', String(Math.ceil(rate / processes)), '--sysinfo', sysinfo];
      const args = ['--agents', String(share), '--seed', systemRandom.uuid(), ...pace, ...known];
      this.#startProgram(this.fleets, `fleet-${this.fleets.length}`, 'lib/agent/simulated/main.ts', args);
    }
    await this.untilRunning(before + agents);
  }

  /**
   * Starts real agents with journals on disk; resolves when their servers are known and running.
   */
  async addAgents(count: number): Promise<void> {
    const before = await this.countRunning();
    const known = this.instances.flatMap(({ url }) => ['--url', url]);
    for (let each = 0; each < count; each++) {
      const name = `agent-${this.agents.length}`;
      const args = ['--data', path.join(this.#folder, name), '--uuid', systemRandom.uuid(), ...known];
      this.#startProgram(this.agents, name, 'lib/agent/main.ts', args);
    }
    await this.untilRunning(before + count);
    await this.untilKnown(before + count);
  }

  /** Adds up the status of all fleets. */
  async fleetStatus(): Promise<Pick<FleetStatus, 'live' | 'heartbeats'>> {
    const answers = await Promise.all(this.fleets.map((fleet) => this.#statusOf(fleet)));
    const sum = (of: (status: FleetStatus) => number) => answers.reduce((total, each) => total + of(each), 0);
    return { live: sum(({ live }) => live), heartbeats: sum(({ heartbeats }) => heartbeats) };
  }

  async untilRunning(count: number): Promise<void> {
    const withinMs = Math.max(RUNNING_WITHIN_MS, count * RUNNING_WITHIN_MS_EACH);
    await this.#until(async () => (await this.countRunning()) >= count, withinMs, `${count} running servers`);
  }

  /** Waits until their sysinfo has arrived, so that callers can see them as servers. */
  async untilKnown(count: number): Promise<void> {
    const isSo = async () => (await this.sql('select 1 from cnapi_servers where uuid is not null')).length >= count;
    await this.#until(isSo, RUNNING_WITHIN_MS, `the sysinfo of ${count} servers`);
  }

  async countRunning(): Promise<number> {
    const rows = await this.sql<{ count: number }>(
      `select count(*)::int as count from cnapi_roster_authority where status = 'running'`,
    );
    return rows[0]?.count ?? 0;
  }

  async sql<Row extends object>(text: string, values: readonly unknown[] = []): Promise<Row[]> {
    if (this.#pool === undefined) throw new Error('the zone has not started');
    return (await this.#pool.query<Row>(text, [...values])).rows;
  }

  stop(): Promise<void> {
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  async #stop(): Promise<void> {
    await Promise.all([...this.fleets, ...this.agents].map((program) => program.kill()));
    await Promise.all(this.instances.map(({ helper }) => helper.stop()));
    await this.#pool?.end();
    if (this.#databaseUrl !== '') await this.#foundation.dropDatabase(this.#databaseUrl);
  }

  #startProgram(among: Program[], name: string, file: string, args: readonly string[]): void {
    const program = new Program({ name, command: ownProgram(file, args), logFile: this.#logFile(name) });
    among.push(program);
    program.start();
  }

  /** A fleet writes its answers to its log. */
  async #statusOf(fleet: Program): Promise<FleetStatus> {
    const answers = () => fleet.log().flatMap(({ status }) => (status === undefined ? [] : [status as FleetStatus]));
    const before = answers().length;
    fleet.say('{"do":"status"}');
    await this.#until(async () => answers().length > before, STATUS_WITHIN_MS, `${fleet.name} to answer`);
    return answers().at(-1) as FleetStatus;
  }

  async #until(isSo: () => Promise<boolean>, withinMs: number, what: string): Promise<void> {
    for (const deadline = clock.now() + withinMs; !(await isSo()); await clock.sleep(LOOK_MS, this.#signal)) {
      this.#signal.throwIfAborted();
      if (clock.now() > deadline) throw new Error(`waited ${withinMs / 1000} s in vain for ${what}`);
      const ended = [...this.fleets, ...this.agents, ...this.instances.map(({ helper }) => helper.program)].find(
        (one) => !one.isAlive,
      );
      if (ended !== undefined) throw new Error(`${ended.name} ended: ${ended.log().at(-1)?.msg}`);
    }
  }

  #logFile(name: string): string {
    return path.join(this.#folder, `${name}.log`);
  }
}
