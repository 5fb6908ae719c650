/**
 * The roster of one instance as the rest of the process sees it: puts its drivers together, hears what other instances
 * say to this run, and carries an instance through the loss of its database. Made by `core.ts`, used by the link and the
 * routes.
 */
import type { Bus, Subscription } from '../bus/bus.ts';
import { parseRunMessage, type RunMessage, runTopic } from '../bus/topics.ts';
import type { Logger } from '../log.ts';
import type { Queryable } from '../moray/database.ts';
import type { Clock, Timer } from '../ports/clock.ts';
import type { Random } from '../ports/random.ts';
import type { Address } from '../wire/frames.ts';
import { Authority } from './authority.ts';
import { Balancer } from './balancer.ts';
import { type DrainDoor, Drainer } from './drainer.ts';
import { drainRun, type InstanceIdentity, type InstanceRow, readLive } from './instance-store.ts';
import { Instances } from './instances.ts';
import { ProbeCaller } from './probe.ts';
import { Reaper } from './reaper.ts';
import { InstanceNotFoundError, LastInstanceError } from './roster-errors.ts';
import { removeAuthority, type Writer } from './roster-store.ts';
import { SessionTable } from './session.ts';
import { readStatusHistory, type StatusChange } from './status-history.ts';
import { Ticker } from './ticker.ts';
import { Verdicts } from './verdicts.ts';
import { Watch } from './watch.ts';

export interface RosterConfig {
  silenceMs: number;
  checkMs: number;
  beatMs: number;
  leaseMs: number;
  adoptGraceMs: number;
  startGraceMs: number;
  slowPollMs: number;
  slowPollNoBusMs: number;
  reconnectMaxMs: number;
  drainAgentsMs: number;
  drainWaitsMs: number;
  balanceQuietMs: number;
}

export interface RosterDeps {
  /** Shared with the rest of the process. */
  database: Queryable;
  /** One connection each, for nothing else. */
  beatDatabase: Queryable;
  verdictDatabase: Queryable;
  bus: Bus;
  cnapiUuid: string;
  /** Where this instance is reached; asked for at start(). */
  identity: () => InstanceIdentity;
  /** What the rest of the process does when this instance leaves. */
  door: DrainDoor;
  config: RosterConfig;
  clock: Clock;
  random: Random;
  log: Logger;
}

/** As served by GET /instances. */
export interface InstanceView {
  uuid: string;
  run: string;
  url: string;
  pid: number;
  version: string;
  state: string;
  agents: number;
  /** How long its beat has stood still as seen from the answering instance. */
  lease_age_ms: number;
  started: string;
}

export interface Readiness {
  ready: boolean;
  reasons: string[];
}

/** A probe goes out after this share of silenceMs (1.25 s of 2 s). */
const PROBE_SHARE = 0.625;
const FRESH_WITHIN_MS = 1000;

export class Roster {
  readonly sessions = new SessionTable();
  readonly instances: Instances;
  readonly authority: Authority;
  readonly verdicts: Verdicts;
  readonly reaper: Reaper;
  readonly balancer: Balancer;
  readonly drainer: Drainer;
  /** What deadlines that judge agents are counted in. */
  readonly ticker: Ticker;
  readonly #deps: RosterDeps;
  readonly #watch: Watch;
  readonly #probes: ProbeCaller;
  #hearing: Subscription | undefined;
  #goaway: Timer | undefined;
  #runMessageListener: (message: RunMessage) => void = () => {};
  #runReadyListener: () => void = () => {};
  #isStarted = false;
  #isStopped = false;

  constructor(deps: RosterDeps) {
    const { bus, clock, cnapiUuid, config, database, log, random } = deps;
    const { sessions } = this;
    this.#deps = deps;
    const ticker = new Ticker({ clock, checkMs: config.checkMs });
    this.ticker = ticker;
    const countAgents = () => sessions.size;
    this.instances = new Instances({ ...deps, database: deps.beatDatabase, ticker, times: config, countAgents });
    const run = () => this.instances.run;
    const writer = (): Writer => ({ cnapiUuid, run: run() });
    this.verdicts = new Verdicts({ database: deps.verdictDatabase, sessions, cnapiUuid, clock, log });
    this.#probes = new ProbeCaller({ bus, sessions, run, ticker, random });
    const common = { sessions, verdicts: this.verdicts, database, writer, clock, log };
    this.authority = new Authority({ ...common, probes: this.#probes, bus });
    const limits = { probeMs: config.silenceMs * PROBE_SHARE, silenceMs: config.silenceMs };
    this.#watch = new Watch({ ...common, ticker, run, limits });
    this.reaper = new Reaper({
      ...common,
      ticker,
      mayJudgeStrangers: () => this.instances.mayJudgeStrangers,
      slowPollMs: () => this.slowPollMs,
      adoptGraceMs: config.adoptGraceMs,
    });
    this.balancer = new Balancer({ ...common, ticker, instances: this.instances, ...config });
    this.drainer = new Drainer({
      ...deps,
      sessions,
      announce: () => this.instances.announceDrain(),
      otherAddresses: () => this.#addressesToLeaveFor(),
      endVerdicts: () => void this.verdicts.stop(),
      times: config,
    });
    this.instances.listen({
      toldToDrain: () => this.drainer.begin('asked to over REST'),
      runRenewed: () => this.#runRenewed(),
      fellSick: (trouble) => this.#askAllToLeave(trouble),
      recovered: () => this.#recovered(),
      runsEnded: () => this.reaper.pollSoon(),
    });
  }

  /** The period of every slow poll: shorter while the bus is lost. */
  get slowPollMs(): number {
    return this.#deps.bus.isHealthy() ? this.#deps.config.slowPollMs : this.#deps.config.slowPollNoBusMs;
  }

  /** Hears the messages to this run that are not the roster's own, and each time the subscription stands (anew). */
  onRunMessage(listener: (message: RunMessage) => void, readyListener: () => void): void {
    this.#runMessageListener = listener;
    this.#runReadyListener = readyListener;
  }

  /** Resolves when the instance is live, or when `signal` has aborted. */
  async start(signal: AbortSignal): Promise<void> {
    this.ticker.start();
    await this.instances.start(signal);
    if (this.#isStopped || signal.aborted) return;
    this.#hear();
    this.reaper.start();
    this.#isStarted = true;
  }

  /** Takes no agents from now on: it is about to stop. */
  retire(): void {
    this.#isStopped = true;
  }

  /** Ends without verdicts: the run marks itself dead, its rows are ownerless, and its agents go to other instances. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#goaway?.cancel();
    this.#hearing?.close();
    const drivers = [this.drainer, this.verdicts, this.reaper, this.#watch, this.instances];
    await Promise.all(drivers.map((driver) => driver.stop()));
    this.ticker.stop();
  }

  /** Whether callers should be sent here now, and why not. */
  readiness(): Readiness {
    return this.#readiness(this.drainer.isDraining);
  }

  /** Whether agents are taken in now, and why not. While it leaves, it takes those that have nobody else to go to. */
  readinessForAgents(): Readiness {
    return this.#readiness(this.drainer.isDraining && this.#addressesToLeaveFor().length > 0);
  }

  /** The live runs as the database has them now, or, if it does not say within a second, as they were last read. */
  async views(): Promise<InstanceView[]> {
    const { clock, database } = this.#deps;
    const lastRead = () => this.instances.live;
    const live = await Promise.race([readLive(database).catch(lastRead), clock.sleep(FRESH_WITHIN_MS).then(lastRead)]);
    return live.map((instance) => this.#viewOf(instance));
  }

  /**
   * The instance is to leave: it hears of it with its next beat. Of two runs of one name the later one is meant.
   * @throws InstanceNotFoundError, LastInstanceError, DatabaseUnavailableError
   */
  async drain(cnapiUuid: string): Promise<InstanceView> {
    const { database } = this.#deps;
    const found = (await readLive(database)).findLast((instance) => instance.cnapiUuid === cnapiUuid);
    if (found === undefined) throw new InstanceNotFoundError(cnapiUuid);
    const answer = await drainRun(database, found.run);
    if (answer === 'gone') throw new InstanceNotFoundError(cnapiUuid);
    if (answer === 'last') throw new LastInstanceError(cnapiUuid);
    return this.#viewOf({ ...found, isDraining: true });
  }

  /** Where agents may go. */
  addresses(): Address[] {
    return addressesOf(this.instances.live);
  }

  statusHistory(serverUuid: string, page: { limit: number; offset: number }): Promise<StatusChange[]> {
    return readStatusHistory(this.#deps.database, serverUuid, page);
  }

  /** Nobody has authority for the server any more; a live session is closed wherever it is. The epoch stays. */
  async removeServer(serverUuid: string): Promise<void> {
    const removed = await removeAuthority(this.#deps.database, this.#deps.cnapiUuid, serverUuid);
    const session = this.sessions.get(serverUuid);
    if (session !== undefined) this.verdicts.supersede(session, 'its server was removed');
    if (!removed?.previousRun || removed.previousRun === this.instances.run) return;
    const message: RunMessage = { kind: 'roster', server_uuid: serverUuid, epoch: removed.epoch };
    this.#deps.bus.publish(runTopic(removed.previousRun), message);
  }

  #viewOf(instance: InstanceRow): InstanceView {
    return {
      uuid: instance.cnapiUuid,
      run: instance.run,
      url: instance.url,
      pid: instance.pid,
      version: instance.version,
      state: instance.isDraining ? 'draining' : instance.state,
      agents: instance.agents,
      lease_age_ms: this.instances.leaseAgeMs(instance.run),
      started: instance.startedAt.toISOString(),
    };
  }

  #readiness(isDraining: boolean): Readiness {
    const reasons: string[] = [];
    if (!this.#isStarted) reasons.push('starting');
    if (this.#isStopped) reasons.push('stopping');
    else if (isDraining) reasons.push('draining');
    if (this.instances.trouble !== undefined) reasons.push(this.instances.trouble);
    return { ready: reasons.length === 0, reasons };
  }

  #otherAddresses(live: readonly InstanceRow[] = this.instances.live): Address[] {
    return addressesOf(live).filter(({ uuid }) => uuid !== this.#deps.cnapiUuid);
  }

  /** Nobody is sent to one that may be dead: those that go have no way back. */
  #addressesToLeaveFor(): Address[] {
    const { instances } = this;
    const doubtfulMs = this.#deps.config.leaseMs / 2;
    return this.#otherAddresses(instances.live.filter(({ run }) => instances.leaseAgeMs(run) < doubtfulMs));
  }

  #hear(): void {
    this.#hearing?.close();
    this.#hearing = this.#deps.bus.subscribe(
      runTopic(this.instances.run),
      (message) => this.#heard(parseRunMessage(message)),
      () => this.#runReadyListener(),
    );
  }

  #heard(message: RunMessage | undefined): void {
    if (message === undefined) return;
    if (message.kind === 'roster') this.reaper.pollSoon();
    else if (message.kind === 'probe') void this.#probes.answer(message);
    else this.#runMessageListener(message);
  }

  #runRenewed(): void {
    this.#watch.runRenewed(this.#deps.clock.now());
    if (!this.#isStopped) this.#hear();
  }

  /** Each goaway is good for one round of addresses: if all refuse, the agent stays, and is asked again. */
  #askAllToLeave(trouble: string): void {
    this.#goaway?.cancel();
    if (this.#isStopped) return;
    const others = this.#otherAddresses();
    // One whose session has not begun to work yet would lose it.
    for (const session of this.sessions.all()) if (session.isInventoried) session.socket.askToLeave(trouble, others);
    this.#goaway = this.#deps.clock.after(this.#deps.config.reconnectMaxMs, () => this.#askAllToLeave(trouble));
  }

  #recovered(): void {
    this.#goaway?.cancel();
    this.#goaway = undefined;
    this.reaper.pollSoon();
  }
}

/** Of those that stay; of two runs at one address (a restart) the later one. */
function addressesOf(live: readonly InstanceRow[]): Address[] {
  const staying = live.filter(({ isDraining }) => !isDraining);
  const places = staying.map(({ cnapiUuid, host, port }) => ({ uuid: cnapiUuid, host, port }));
  return [...new Map(places.map((place) => [`${place.host}:${place.port}`, place])).values()];
}
