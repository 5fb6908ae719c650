/**
 * The roster of one instance as the rest of the process sees it. Connects the roster's drivers,
 * receives what other instances send to this run, and starts and ends the evacuation when the
 * instance becomes unhealthy and recovers. Made by `core.ts`; used by the link and the routes.
 */
import type { Bus, BusMessage, Subscription } from '../../platform/bus/bus.ts';
import type { Logger } from '../../platform/log.ts';
import type { Queryable } from '../../platform/postgres/database.ts';
import type { Random } from '../../platform/random.ts';
import type { Clock } from '../../platform/time/clock.ts';
import type { EventLoop } from '../../platform/time/event-loop.ts';
import { HealthyTimer } from '../../platform/time/healthy-timer.ts';
import type { InstanceAddress } from '../../protocol/link/frames.ts';
import { runTopic } from '../run-topic.ts';
import { Arrivals } from './accept/arrivals.ts';
import { Authority } from './accept/authority.ts';
import { ProbeCaller } from './accept/probe.ts';
import { drainRun, type InstanceIdentity, type InstanceRow, readLive } from './membership/instance-store.ts';
import { Membership } from './membership/membership.ts';
import { InstanceNotFoundError, LastInstanceError } from './membership/roster-errors.ts';
import { Balancer } from './relocation/balancer.ts';
import { Drainer, type DrainingInstance } from './relocation/drainer.ts';
import { Evacuation } from './relocation/evacuation.ts';
import type { RunListener } from './run-listener.ts';
import { parseRunMessage, type RunMessage } from './run-message.ts';
import { Reaper } from './sessions/reaper.ts';
import { SessionTable } from './sessions/session.ts';
import { SessionLosses } from './sessions/session-losses.ts';
import { SilenceDetector } from './sessions/silence-detector.ts';
import type { RunIdentity } from './status/roster-store.ts';
import { readStatusHistory, type StatusHistoryRow } from './status/status-history.ts';

/** An instance that is not dead. */
export interface LiveInstance extends InstanceRow {
  /** How long its beat has stood still, as this instance sees it. */
  leaseAgeMs: number;
}

interface RosterConfig {
  silenceMs: number;
  checkMs: number;
  beatMs: number;
  leaseMs: number;
  ownerlessGraceMs: number;
  startGraceMs: number;
  slowPollMs: number;
  slowPollNoBusMs: number;
  reconnectMaxMs: number;
  drainAgentsMs: number;
  drainWaitsMs: number;
  balanceQuietMs: number;
  maxAgents: number;
}

interface RosterDeps {
  /** Shared with the rest of the process. */
  database: Queryable;
  /** Databases with one connection each; nothing else uses them. */
  beatDatabase: Queryable;
  sessionLossDatabase: Queryable;
  /** A few connections for the statements that admit agents. */
  arrivalDatabase: Queryable;
  bus: Bus;
  cnapiUuid: string;
  /** Where this instance is reached; called at start(). */
  identity: () => InstanceIdentity;
  /** What the rest of the process does when this instance leaves. */
  instance: DrainingInstance;
  config: RosterConfig;
  eventLoop: EventLoop;
  clock: Clock;
  random: Random;
  log: Logger;
}

/** The readiness of an instance, in the form of GET /instances. */
export interface Readiness {
  ready: boolean;
  reasons: string[];
}

/** A probe is sent after this share of silenceMs (1.25 s of 2 s). */
const PROBE_SHARE = 0.625;
const FRESH_WITHIN_MS = 1000;

export class Roster {
  readonly sessions = new SessionTable();
  readonly membership: Membership;
  readonly arrivals: Arrivals;
  readonly authority: Authority;
  readonly sessionLosses: SessionLosses;
  readonly reaper: Reaper;
  readonly balancer: Balancer;
  readonly evacuation: Evacuation;
  readonly drainer: Drainer;
  /** Deadlines after which a peer is considered dead are counted in its ticks. */
  readonly healthyTimer: HealthyTimer;
  readonly #deps: RosterDeps;
  readonly #silenceDetector: SilenceDetector;
  readonly #probes: ProbeCaller;
  #runMessages: Subscription | undefined;
  #listeners: readonly RunListener[] = [];
  #isStarted = false;
  #isStopped = false;

  constructor(deps: RosterDeps) {
    const { bus, clock, cnapiUuid, config, database, log, random } = deps;
    const { sessions } = this;
    this.#deps = deps;
    const healthyTimer = new HealthyTimer({ clock, checkMs: config.checkMs });
    this.healthyTimer = healthyTimer;
    const countAgents = () => sessions.size;
    this.membership = new Membership({
      ...deps,
      database: deps.beatDatabase,
      healthyTimer,
      times: config,
      countAgents,
      admission: () => this.arrivals.admission,
      latestReturnInMs: () => this.arrivals.latestReturnInMs,
    });
    const run = () => this.membership.run;
    const writer = (): RunIdentity => ({ cnapiUuid, run: run() });
    this.sessionLosses = new SessionLosses({ database: deps.sessionLossDatabase, sessions, cnapiUuid, clock, log });
    this.#probes = new ProbeCaller({ bus, sessions, run, healthyTimer, random });
    const common = { sessions, sessionLosses: this.sessionLosses, database, writer, clock, log };
    this.authority = new Authority({ ...common, arrivalDatabase: deps.arrivalDatabase, probes: this.#probes, bus });
    const limits = { probeMs: config.silenceMs * PROBE_SHARE, silenceMs: config.silenceMs };
    this.#silenceDetector = new SilenceDetector({ ...common, healthyTimer, run, limits });
    this.arrivals = new Arrivals({
      healthyTimer,
      eventLoop: deps.eventLoop,
      sessions: countAgents,
      quiet: () => this.#silenceDetector.quiet,
      statementMs: () => this.authority.statementMs,
      roundTripMs: () => this.membership.roundTripMs,
      takesAgents: () => this.readinessForAgents().ready,
      maxAgents: config.maxAgents,
      clock,
      log,
    });
    this.reaper = new Reaper({
      ...common,
      healthyTimer,
      mayMarkOthersUnknown: () => this.membership.mayMarkOthersUnknown,
      slowPollMs: () => this.slowPollMs,
      ownerlessGraceMs: config.ownerlessGraceMs,
      reconnectMaxMs: config.reconnectMaxMs,
    });
    this.balancer = new Balancer({ ...common, healthyTimer, membership: this.membership, ...config });
    this.evacuation = new Evacuation({
      ...common,
      addresses: () => this.#otherAddresses(this.membership.live.filter(({ admission }) => admission !== 'closed')),
      askAgainMs: config.reconnectMaxMs,
    });
    this.drainer = new Drainer({
      ...deps,
      sessions,
      announce: () => this.membership.announceDrain(),
      otherAddresses: () => this.#addressesToLeaveFor(),
      stopSessionLosses: () => void this.sessionLosses.stop(),
      times: config,
    });
    this.membership.listen({
      onDrainRequested: () => this.drainer.begin('asked to over REST'),
      onRunRenewed: () => this.#runRenewed(),
      onUnhealthy: (reason) => {
        if (!this.#isStopped) this.evacuation.begin(reason);
      },
      onRecovered: () => this.#recovered(),
      onRunsEnded: () => {
        this.reaper.trigger();
        for (const listener of this.#listeners) listener.onRunsEnded?.();
      },
    });
  }

  /** The period of every slow poll: shorter while the bus is lost. */
  get slowPollMs(): number {
    return this.#deps.bus.isHealthy() ? this.#deps.config.slowPollMs : this.#deps.config.slowPollNoBusMs;
  }

  /**
   * Resolves when the instance is live, or when `signal` has aborted. `listeners` learn what
   * happens to its run.
   */
  async start(signal: AbortSignal, listeners: readonly RunListener[] = []): Promise<void> {
    this.#listeners = listeners;
    this.healthyTimer.start();
    await this.membership.start(signal);
    if (this.#isStopped || signal.aborted) return;
    this.#subscribe();
    this.reaper.start();
    this.#isStarted = true;
  }

  /** Refuses new agents, because the process is about to stop. */
  refuseAgents(): void {
    this.#isStopped = true;
  }

  /**
   * Stops without changing any status: the run marks itself dead, its rows become ownerless, and
   * its agents go to other instances.
   */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.evacuation.end();
    this.#runMessages?.close();
    const drivers = [this.drainer, this.sessionLosses, this.reaper, this.#silenceDetector, this.membership];
    await Promise.all(drivers.map((driver) => driver.stop()));
    this.healthyTimer.stop();
  }

  /** Whether callers should be sent here now, and why not. */
  readiness(): Readiness {
    return this.#readiness(this.drainer.isDraining);
  }

  /**
   * Whether agents are accepted now, and why not. While the instance drains, it accepts agents only
   * if they can go nowhere else.
   */
  readinessForAgents(): Readiness {
    return this.#readiness(this.drainer.isDraining && this.#addressesToLeaveFor().length > 0);
  }

  /** Whether every instance that stays rejects new agents. */
  get isZoneAtCapacity(): boolean {
    const staying = this.membership.live.filter(({ isDraining }) => !isDraining);
    return staying.length > 0 && staying.every(({ admission }) => admission !== undefined && admission !== 'open');
  }

  /**
   * The live runs as the database has them now, or, if it does not answer within a second, as they
   * were last read.
   */
  async listInstances(): Promise<LiveInstance[]> {
    const { clock, database } = this.#deps;
    const lastRead = () => this.membership.live;
    const live = await Promise.race([readLive(database).catch(lastRead), clock.sleep(FRESH_WITHIN_MS).then(lastRead)]);
    return live.map((instance) => this.#withLeaseAge(instance));
  }

  /**
   * Asks an instance to drain; it learns this with its next beat. Of two runs of one instance, the
   * later one drains.
   * @throws InstanceNotFoundError, LastInstanceError, DatabaseUnavailableError
   */
  async drain(cnapiUuid: string): Promise<LiveInstance> {
    const { database } = this.#deps;
    const found = (await readLive(database)).findLast((instance) => instance.cnapiUuid === cnapiUuid);
    if (found === undefined) throw new InstanceNotFoundError(cnapiUuid);
    const answer = await drainRun(database, found.run);
    if (answer === 'gone') throw new InstanceNotFoundError(cnapiUuid);
    if (answer === 'last') throw new LastInstanceError(cnapiUuid);
    return this.#withLeaseAge({ ...found, isDraining: true });
  }

  /** Where agents may go. */
  addresses(): InstanceAddress[] {
    return addressesOf(this.membership.live);
  }

  statusHistory(serverUuid: string, page: { limit: number; offset: number }): Promise<StatusHistoryRow[]> {
    return readStatusHistory(this.#deps.database, serverUuid, page);
  }

  /**
   * No run has authority for the server any more: closes its session, here or at the run that had
   * it.
   */
  serverRemoved(
    serverUuid: string,
    { previousRun, epoch }: { previousRun: string | null; epoch: number | null },
  ): void {
    if (previousRun === null || epoch === null) return;
    const session = this.sessions.get(serverUuid);
    // A session of a higher epoch was accepted after the removal.
    if (session !== undefined && session.epoch <= epoch)
      this.sessionLosses.supersede(session, 'its server was removed');
    if (previousRun === this.membership.run) return;
    const message: RunMessage = { kind: 'roster', server_uuid: serverUuid, epoch };
    this.#deps.bus.publish(runTopic(previousRun), message);
  }

  #withLeaseAge(instance: InstanceRow): LiveInstance {
    return { ...instance, leaseAgeMs: this.membership.leaseAgeMs(instance.run) };
  }

  #readiness(isDraining: boolean): Readiness {
    const reasons: string[] = [];
    if (!this.#isStarted) reasons.push('starting');
    if (this.#isStopped) reasons.push('stopping');
    else if (isDraining) reasons.push('draining');
    if (this.membership.unhealthyReason !== undefined) reasons.push(this.membership.unhealthyReason);
    return { ready: reasons.length === 0, reasons };
  }

  #otherAddresses(live: readonly InstanceRow[] = this.membership.live): InstanceAddress[] {
    return addressesOf(live).filter(({ uuid }) => uuid !== this.#deps.cnapiUuid);
  }

  /** Leaves out instances that may be dead: agents that are sent there could not come back here. */
  #addressesToLeaveFor(): InstanceAddress[] {
    const { membership } = this;
    const doubtfulMs = this.#deps.config.leaseMs / 2;
    return this.#otherAddresses(membership.live.filter(({ run }) => membership.leaseAgeMs(run) < doubtfulMs));
  }

  #subscribe(): void {
    this.#runMessages?.close();
    this.#runMessages = this.#deps.bus.subscribe(
      runTopic(this.membership.run),
      (message) => this.#onRunMessage(message),
      () => {
        for (const listener of this.#listeners) listener.onSubscriptionConfirmed?.();
      },
    );
  }

  #onRunMessage(message: BusMessage): void {
    const own = parseRunMessage(message);
    if (own?.kind === 'roster') this.reaper.trigger();
    else if (own?.kind === 'probe') void this.#probes.answer(own);
    else for (const listener of this.#listeners) listener.onMessage?.(message);
  }

  #runRenewed(): void {
    this.#silenceDetector.runRenewed(this.#deps.clock.now());
    if (!this.#isStopped) this.#subscribe();
    for (const listener of this.#listeners) listener.onRunRenewed?.();
  }

  #recovered(): void {
    this.evacuation.end();
    this.reaper.trigger();
    for (const listener of this.#listeners) listener.onRecovered?.();
  }
}

/**
 * The addresses of the instances that stay; of two runs at one address (a restart), the later one.
 */
function addressesOf(live: readonly InstanceRow[]): InstanceAddress[] {
  const staying = live.filter(({ isDraining }) => !isDraining);
  const places = staying.map(({ cnapiUuid, host, port }) => ({ uuid: cnapiUuid, host, port }));
  return [...new Map(places.map((place) => [`${place.host}:${place.port}`, place])).values()];
}
