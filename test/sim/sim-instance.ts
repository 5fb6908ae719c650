/**
 * One instance of the simulated world, through all its lives: the product's core over simulated
 * ports.
 */
import type { UpgradeRefusal } from '../../lib/agent/link/link-socket.ts';
import { busSubsystem } from '../../lib/control/bus/subsystem.ts';
import { type Config, parseConfig } from '../../lib/control/config.ts';
import { Core } from '../../lib/control/core.ts';
import { housekeepingSubsystem } from '../../lib/control/housekeeping/subsystem.ts';
import type { Route } from '../../lib/control/http/route.ts';
import type { NewPushJob } from '../../lib/control/push/push-store.ts';
import type { Subsystem } from '../../lib/control/subsystem.ts';
import { SubsystemHost } from '../../lib/control/subsystem-host.ts';
import { coreSubsystems, migrations } from '../../lib/control/subsystem-list.ts';
import { isTemporary } from '../../lib/platform/errors.ts';
import { SimDatabase } from './sim-database.ts';
import { DUTY_KIND, SimDutyHandler } from './sim-duty.ts';
import type { InstanceEnd, LinkIngress } from './sim-link.ts';
import type { SimProcess } from './sim-process.ts';
import type { World } from './world.ts';

/**
 * Shorter than the product's times, so that they pass within a run; the roster's are the product's
 * own.
 */
export const SIM_TIMES = {
  taskStartByMs: 10_000,
  taskOverdueMs: 12_000,
  drainAgentsMs: 10_000,
  drainWaitsMs: 15_000,
  balanceQuietMs: 6_000,
};
/** `annealerMaxRuns`: fewer than the servers, so that some noderoles wait for others. */
export const SIM_MAX_RUNS = 2;
const SHORT_QUERY_MS = 2_000;
const QUERY_MS = 12_000;
const ARRIVAL_CONNECTIONS = 3;
const KEPT_ENDS = 10;
const EACH_MINUTE = '* * * * *';

const beforeCore = [busSubsystem];
const overCore = [...coreSubsystems, housekeepingSubsystem];
/** The subsystems of the product that an instance of the simulation runs. */
export const simulatedSubsystems = [...beforeCore, ...overCore];

export class SimInstance implements LinkIngress {
  readonly name: string;
  readonly uuid: string;
  readonly host: string;
  readonly #world: World;
  readonly config: Config & { cnapiUuid: string };
  #life: Life | undefined;
  #lives = 0;
  /** The start of the instance's current life, in virtual time. */
  startedAt = 0;
  /** The latest connections of each server, the newest first. */
  readonly #ends = new Map<string, InstanceEnd[]>();

  constructor(world: World, number: number) {
    this.#world = world;
    this.name = `inst-${number}`;
    this.uuid = world.random.fork(this.name).uuid();
    this.host = `10.0.0.${number + 1}`;
    const parsed = parseConfig({
      ...SIM_TIMES,
      annealerMaxRuns: SIM_MAX_RUNS,
      host: this.host,
      // The authentication of tokens is not simulated; without open access no other machine could
      // connect.
      access: 'tokens',
      databaseUrl: 'postgres://simulated',
      cnapiUuid: this.uuid,
    });
    this.config = { ...parsed, cnapiUuid: this.uuid };
  }

  /** The process of its current or last life. */
  get process(): SimProcess {
    if (this.#life === undefined) throw new Error(`${this.name} was never started`);
    return this.#life.process;
  }

  get core(): Core | undefined {
    return this.#life?.core;
  }

  get duties(): SimDutyHandler | undefined {
    return this.#life?.duties;
  }

  /** Like a request that is not answered: the caller looks for what became of it. */
  createDuty(id: string): void {
    const { duties, process, core } = this.#life ?? {};
    if (!this.isOpen) return;
    process?.receive(0, () => {
      duties?.create(id).then(
        () => core?.duties.offer(),
        (error: unknown) => isTemporary(error) || this.#world.crashed(this.name, error),
      );
    });
  }

  /** Likewise; its id is the caller's, so that a repeated request makes no second one. */
  createPushJob(
    job: Pick<NewPushJob, 'id' | 'command' | 'nodes' | 'quorum' | 'concurrency' | 'maxFailures' | 'ticket' | Times>,
  ): void {
    const { process, core } = this.#life ?? {};
    if (!this.isOpen) return;
    const rest = { organization: undefined, options: {}, maskedOptions: undefined, file: undefined, actor: undefined };
    process?.receive(0, () => {
      core?.pushJobs
        .create({ ...rest, ...job })
        .catch((error: unknown) => isTemporary(error) || isSecond(error) || this.#world.crashed(this.name, error));
    });
  }

  get routes(): readonly Route[] {
    return this.#life?.routes ?? [];
  }

  /** True while a process exists that is not stopped. */
  get isUp(): boolean {
    return this.#life?.process.isRunning === true;
  }

  /** Whether the instance listens, so that agents and callers can connect. */
  get isOpen(): boolean {
    return this.#life?.ingress.isOpen === true && !this.#life.process.isDead;
  }

  start(): void {
    if (this.#life !== undefined && !this.#life.process.isDead) return;
    this.#lives += 1;
    this.startedAt = this.#world.time.now;
    const process = this.#world.newProcess(this.name, `${this.name}/${this.#lives}`);
    this.#life = this.#build(process);
    const { subsystemHost } = this.#life;
    subsystemHost
      .start()
      .catch((error: unknown) => this.#world.violated('I6', `${this.name} does not start: ${error}`));
    // A process ends when its instance has stopped.
    void subsystemHost.stopped.then(() => process.kill());
  }

  kill({ isPowerless }: { isPowerless: boolean }): void {
    this.#life?.process.kill({ isPowerless });
  }

  /** Starts the drain that SIGTERM starts. */
  drain(): void {
    if (this.isUp) this.#life?.process.receive(0, () => this.core?.drain('simulated'));
  }

  get frameMs(): number {
    return this.#world.costs.frameMs;
  }

  /** Like a process whose peer vanished: it learns only later that nobody is there. */
  abandoned(): void {
    const { refusalMs, greetMs } = this.#world.costs;
    if (greetMs === 0 || this.core === undefined || !this.isOpen) return;
    this.process.loop.work(this.core.link.refuseArrival(() => true) === undefined ? greetMs : refusalMs);
  }

  upgrade(serverUuid: string, end: InstanceEnd): UpgradeRefusal | undefined {
    const link = this.core?.link;
    if (link === undefined || !this.isOpen) return { status: 503, retryAfterMs: 0 };
    const { refusalMs, greetMs } = this.#world.costs;
    const refusal = link.refuseArrival(() => true);
    this.process.loop.work(refusal === undefined ? greetMs : refusalMs);
    if (refusal !== undefined) {
      const retryAfterMs = 1000 * (refusal.retryAfterSeconds ?? 0);
      this.#world.checks.roster.deferred(serverUuid, this, retryAfterMs);
      return { status: 503, retryAfterMs };
    }
    this.#ends.set(serverUuid, [end, ...(this.#ends.get(serverUuid) ?? [])].slice(0, KEPT_ENDS));
    link.take({ socket: end, stream: end.stream, serverUuid });
    return undefined;
  }

  /** The connection that was welcomed under this epoch, open or not. */
  connectionOf(serverUuid: string, epoch: number): InstanceEnd | undefined {
    return this.#ends.get(serverUuid)?.find((end) => end.epoch === epoch);
  }

  /** Counts a request being answered here until the result is called. */
  entered(): () => void {
    const ingress = this.#life?.ingress;
    if (ingress === undefined) return () => {};
    ingress.unanswered += 1;
    return () => {
      ingress.unanswered -= 1;
    };
  }

  #build(process: SimProcess): Life {
    const { postgres, hub, story, hasDuties } = this.#world;
    const { clock, random } = process;
    const log = story.logger(this.name);
    const open = (maxConnections: number, queryTimeoutMs: number) =>
      new SimDatabase({ process, postgres, maxConnections, queryTimeoutMs });
    const databases = {
      main: open(this.config.databasePoolSize, QUERY_MS),
      arrivals: open(ARRIVAL_CONNECTIONS, QUERY_MS),
      beats: open(1, SHORT_QUERY_MS),
      sessionLosses: open(1, SHORT_QUERY_MS),
      legacyHeartbeats: open(1, SHORT_QUERY_MS),
    };
    const { main, arrivals, beats, sessionLosses, legacyHeartbeats } = databases;
    const all = [main, arrivals, beats, sessionLosses, legacyHeartbeats] as const;
    const subsystemHost = new SubsystemHost({ databases: all, migrations, clock, log });
    const bus = hub.bus(process, log);
    const ingress = new SimIngress(this.host);
    const duties = new SimDutyHandler(this.#world, process, main);
    const core = new Core({
      config: this.config,
      clock,
      eventLoop: { busyShare: process.loop.busyShare() },
      random,
      log,
      databases,
      bus,
      ingress,
      newServers: { refusalOf: () => undefined },
      subsystemHost,
    });
    subsystemHost.open(beforeCore, core);
    subsystemHost.add(ingress.subsystem);
    subsystemHost.open(overCore, { ...core, schedule: EACH_MINUTE });
    if (hasDuties) subsystemHost.add({ name: 'simulated duties', dutyHandlers: { [DUTY_KIND]: duties } });
    return { process, ingress, subsystemHost, core, duties, routes: subsystemHost.routes };
  }
}

type Times = 'votingTimeoutMs' | 'runTimeoutMs' | 'abortTimeoutMs';

const isSecond = (error: unknown): boolean => (error as { code?: string }).code === '23505';

interface Life {
  process: SimProcess;
  ingress: SimIngress;
  subsystemHost: SubsystemHost;
  core: Core;
  duties: SimDutyHandler;
  routes: readonly Route[];
}

/** The listener of an instance, without sockets. */
class SimIngress {
  readonly url: string;
  isOpen = false;
  unanswered = 0;

  constructor(host: string) {
    this.url = `http://${host}:8080`;
  }

  mayLog(): boolean {
    return true;
  }

  get subsystem(): Subsystem {
    const close = () => {
      this.isOpen = false;
    };
    return {
      name: 'listener',
      start: () => {
        this.isOpen = true;
      },
      unfinished: () => this.unanswered,
      endDrain: close,
      disconnect: async () => close(),
    };
  }
}
