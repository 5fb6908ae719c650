/**
 * This instance among the others: raises its run's beat each `beatMs` on a connection that does
 * nothing else, watches the others' beats, and declares runs dead whose lease has lapsed. It also
 * decides whether this process is healthy enough to change the status of servers: whether the
 * database answers, and whether enough time has passed since it last began to accept agents.
 *
 *     joining ──row inserted──▶ live ──beat finds the run dead──▶ renewing
 *     renewing ──new run's row inserted──▶ live
 *     live, healthy ──two failed beats, or two with no healthy tick for leaseMs──▶ live, unhealthy
 *     live, unhealthy ──neither──▶ live, healthy
 *     any ──stop()──▶ ended (the run marks itself dead; it changes no server's status)
 */

import { DatabaseBusyError, isTemporary, messageOf } from '../../../platform/errors.ts';
import type { Logger } from '../../../platform/log.ts';
import type { Queryable } from '../../../platform/postgres/database.ts';
import { writeFailureReason } from '../../../platform/postgres/unavailable.ts';
import type { Random } from '../../../platform/random.ts';
import type { Clock } from '../../../platform/time/clock.ts';
import type { HealthyTimer } from '../../../platform/time/healthy-timer.ts';
import { Loop } from '../../../platform/time/loop.ts';
import type { Admission } from '../../../protocol/api/instances.ts';
import {
  type BeatResult,
  type DrainResult,
  declareLapsed,
  drainRun,
  endRun,
  type InstanceIdentity,
  type InstanceRow,
  incrementBeat,
  insertRun,
  readLive,
  wasAskedToDrain,
} from './instance-store.ts';
import { type ObservedLeases, observeLeases } from './lease.ts';
import { RoundTrip } from './round-trip.ts';

interface InstancesTimes {
  beatMs: number;
  leaseMs: number;
  silenceMs: number;
  startGraceMs: number;
}

interface MembershipDeps {
  /** A database of one connection with short timeouts; nothing else uses it. */
  database: Queryable;
  cnapiUuid: string;
  /** Where this instance is reached; known once it listens. */
  identity: () => InstanceIdentity;
  healthyTimer: HealthyTimer;
  clock: Clock;
  random: Random;
  log: Logger;
  times: InstancesTimes;
  /** How many agents this instance holds now. */
  countAgents: () => number;
  /** Whether this instance admits new agents. */
  admission: () => Admission;
  /** See `Arrivals.latestReturnInMs`. */
  latestReturnInMs: () => number | undefined;
}

interface MembershipListener {
  /** The run was found dead; `newRun` is live from now on. */
  onRunRenewed?(oldRun: string, newRun: string): void;
  /** The instance cannot act for its agents now. */
  onUnhealthy?(reason: string): void;
  onRecovered?(): void;
  /** The row of the instance says that it must leave. */
  onDrainRequested?(): void;
  /** Runs that were live at the previous read are not live any more. */
  onRunsEnded?(runs: readonly string[]): void;
}

const FAILED_BEATS_TO_UNHEALTHY = 2;

export class Membership {
  readonly #deps: MembershipDeps;
  readonly #leases: ObservedLeases;
  readonly #roundTrip: RoundTrip;
  readonly #listeners: MembershipListener[] = [];
  readonly #stopping = new AbortController();
  #run: string;
  #live: InstanceRow[] = [];
  #startedAt: Date | null = null;
  #isDraining = false;
  /**
   * An earlier run of this process was asked to drain, and the present run's row does not say so
   * yet.
   */
  #isDrainPending = false;
  /** The id of a run whose row may be there: the answer to its insert may have been lost. */
  #nextRun: string | undefined;
  #failedBeats = 0;
  /** The error of the last failed beat. */
  #databaseFailure = '';
  #stalledBeats = 0;
  #healthyMs = 0;
  readonly #loop: Loop;
  #starting: Promise<void> | undefined;
  /** A run of this process has a row. */
  #hasJoined = false;

  constructor(deps: MembershipDeps) {
    this.#deps = deps;
    this.#leases = observeLeases(deps.times.leaseMs);
    this.#roundTrip = new RoundTrip(deps.clock.now());
    this.#run = deps.random.uuid();
    this.#loop = new Loop({
      ...deps,
      what: 'instance: beat',
      work: () => this.#beatOnce(),
      pauseMs: (tookMs) => deps.times.beatMs - tookMs,
    });
    deps.healthyTimer.onTick((tickMs) => this.#countTick(tickMs));
    deps.healthyTimer.onStall(deps.times.silenceMs, (stalledMs) => this.#noteStall(stalledMs));
  }

  listen(listener: MembershipListener): void {
    this.#listeners.push(listener);
  }

  get run(): string {
    return this.#run;
  }

  get cnapiUuid(): string {
    return this.#deps.cnapiUuid;
  }

  /**
   * Why this instance cannot act for its agents, for people to read; undefined while it is healthy.
   */
  get unhealthyReason(): string | undefined {
    if (!this.isDatabaseHealthy) return this.#databaseFailure;
    return this.#stalledBeats < FAILED_BEATS_TO_UNHEALTHY ? undefined : 'this process cannot keep up with its work';
  }

  /** How far away the database is: the shortest answer to a beat in the last minutes. */
  get roundTripMs(): number {
    return this.#roundTrip.shortestMs;
  }

  /** False after two failed beats, until one succeeds. */
  get isDatabaseHealthy(): boolean {
    return this.#failedBeats < FAILED_BEATS_TO_UNHEALTHY;
  }

  /**
   * Whether this instance has run long enough, without a stall or a lost database, to change the
   * status of servers that it never held.
   */
  get mayMarkOthersUnknown(): boolean {
    return this.unhealthyReason === undefined && this.#healthyMs >= this.#deps.times.startGraceMs;
  }

  /** The live runs at the last successful read. */
  get live(): readonly InstanceRow[] {
    return this.#live;
  }

  /** Announces in the database that this instance is about to leave. */
  async announceDrain(): Promise<DrainResult> {
    const answer = await drainRun(this.#deps.database, this.#run);
    if (answer === 'draining') this.#isDraining = true;
    return answer;
  }

  /** How long this instance has seen a run's beat stand still, in milliseconds. */
  leaseAgeMs(run: string): number {
    return this.#leases.unchangedMs(run) ?? 0;
  }

  /**
   * Inserts this run's row and reads the others'. Waits until the database answers or `signal`
   * aborts. After a stop, which may come between its steps, nothing of it runs on.
   */
  start(signal: AbortSignal): Promise<void> {
    this.#starting = this.#join(signal);
    return this.#starting;
  }

  async #join(signal: AbortSignal): Promise<void> {
    const ended = AbortSignal.any([signal, this.#stopping.signal]);
    while (!ended.aborted) {
      try {
        this.#run = await this.#insertRun(this.#run);
        this.#hasJoined = true;
        if (ended.aborted) return;
        this.#deps.log.info({ run: this.#run, url: this.#deps.identity().url }, 'instance: joining -> live');
        await this.#observe();
        this.#healthyMs = 0;
        this.#loop.start();
        return;
      } catch (error) {
        if (!isTemporary(error)) throw error;
        await this.#deps.clock.sleep(this.#deps.times.beatMs, ended);
      }
    }
  }

  async stop(): Promise<void> {
    const isFirst = !this.#stopping.signal.aborted;
    this.#stopping.abort();
    await this.#loop.stop();
    // It throws to its caller.
    await this.#starting?.catch(() => undefined);
    if (!isFirst || !this.#hasJoined) return;
    const { database, latestReturnInMs, log } = this.#deps;
    // While a new run is being inserted, the present one is dead.
    const run = this.#nextRun ?? this.#run;
    await endRun(database, run, latestReturnInMs()).catch((error: unknown) => {
      log.warn({ run, reason: messageOf(error) }, 'instance: run could not be marked ended; its lease will lapse');
    });
  }

  async #beatOnce(): Promise<void> {
    this.#noteStalling();
    if (this.#stalledBeats >= FAILED_BEATS_TO_UNHEALTHY) {
      // Do not raise the beat: the lease must lapse, so that other instances take over the servers.
      this.#leases.readFailed();
      return;
    }
    try {
      const row = await this.#incrementBeat();
      if (row === undefined) await this.#renewRun();
      await this.#observe();
      if (row !== 'busy' && row?.isDraining) this.#onDrainRequested();
      // The row of a new run does not say so yet.
      else if (row !== 'busy' && this.#isDraining) await this.announceDrain();
      else if (row !== 'busy' && this.#isDrainPending) await this.#drainAsAskedBefore();
      this.#noteSuccess();
    } catch (error) {
      this.#leases.readFailed();
      if (error instanceof DatabaseBusyError) this.#noteBusy(error);
      else this.#noteFailure(error);
    }
  }

  /**
   * While a run's row is locked, nobody can declare the run dead. The database is healthy, and the
   * others are watched as usual.
   */
  async #incrementBeat(): Promise<BeatResult | 'busy'> {
    try {
      const { admission, clock, countAgents, database, latestReturnInMs } = this.#deps;
      const sentAt = clock.now();
      const report = { agents: countAgents(), admission: admission(), latestReturnInMs: latestReturnInMs() };
      const answer = await incrementBeat(database, this.#run, report);
      this.#roundTrip.note(clock.now() - sentAt, clock.now());
      return answer;
    } catch (error) {
      if (!(error instanceof DatabaseBusyError)) throw error;
      this.#noteBusy(error);
      return 'busy';
    }
  }

  #noteBusy(error: DatabaseBusyError): void {
    this.#deps.log.warn({ run: this.#run, reason: messageOf(error.cause) }, 'instance: beat delayed, row in use');
  }

  async #observe(): Promise<void> {
    const live = await readLive(this.#deps.database);
    const runs = new Set(live.map(({ run }) => run));
    const ended = this.#live.filter(({ run }) => !runs.has(run)).map(({ run }) => run);
    this.#live = live;
    const lapsed = this.#leases.read(live.filter(({ run }) => run !== this.#run));
    if (lapsed.length > 0) ended.push(...(await this.#declare(lapsed)));
    if (ended.length > 0) for (const listener of this.#listeners) listener.onRunsEnded?.(ended);
  }

  async #declare(lapsed: { run: string; beat: number }[]): Promise<string[]> {
    const dead = await declareLapsed(this.#deps.database, lapsed);
    for (const run of dead)
      this.#deps.log.warn({ run, lease_ms: this.#deps.times.leaseMs }, 'instance: live -> dead, its lease lapsed');
    this.#live = this.#live.filter(({ run }) => !dead.includes(run));
    return dead;
  }

  async #renewRun(): Promise<void> {
    const oldRun = this.#run;
    await this.#noteDrainOf(oldRun);
    const newRun = await this.#insertRun(this.#deps.random.uuid());
    this.#run = newRun;
    this.#healthyMs = 0;
    this.#deps.log.warn(
      { old_run: oldRun, new_run: newRun },
      'instance: this run was declared dead; continuing under a new one',
    );
    for (const listener of this.#listeners) listener.onRunRenewed?.(oldRun, newRun);
  }

  /**
   * The request went to a run that died before it learnt of it. If this is the last instance, it
   * stays: the others that were to stay are gone.
   */
  async #drainAsAskedBefore(): Promise<void> {
    const answer = await drainRun(this.#deps.database, this.#run);
    if (answer === 'gone') return;
    this.#isDrainPending = false;
    if (answer === 'draining') this.#onDrainRequested();
    else this.#deps.log.warn({ run: this.#run }, 'instance: asked to drain, but stays because it is the last instance');
  }

  #onDrainRequested(): void {
    if (this.#isDraining) return;
    this.#isDraining = true;
    for (const listener of this.#listeners) listener.onDrainRequested?.();
  }

  /**
   * Inserts the row of a new run and returns its id: `wanted`, or that of an earlier try whose
   * answer was lost, so that no second row is left. If that one has been declared dead meanwhile, a
   * new id: it may have been asked to drain while it was live.
   */
  async #insertRun(wanted: string): Promise<string> {
    const { database, identity, random } = this.#deps;
    const run = this.#nextRun ?? wanted;
    this.#nextRun = run;
    const startedAt = await insertRun(database, run, identity(), this.#startedAt);
    if (startedAt === undefined) await this.#noteDrainOf(run);
    this.#nextRun = undefined;
    if (startedAt === undefined) return this.#insertRun(random.uuid());
    this.#startedAt = startedAt;
    return run;
  }

  async #noteDrainOf(deadRun: string): Promise<void> {
    this.#isDrainPending ||= await wasAskedToDrain(this.#deps.database, deadRun);
  }

  #noteStalling(): void {
    const isStalled = this.#deps.healthyTimer.sinceHealthyMs > this.#deps.times.leaseMs;
    this.#change(() => {
      this.#stalledBeats = isStalled ? this.#stalledBeats + 1 : 0;
    });
  }

  #noteSuccess(): void {
    this.#change(() => {
      this.#failedBeats = 0;
    });
  }

  #noteFailure(error: unknown): void {
    const { log } = this.#deps;
    if (isTemporary(error)) log.debug({ run: this.#run, reason: messageOf(error) }, 'instance: beat failed');
    else log.error({ run: this.#run, err: error }, 'instance: a beat failed unexpectedly');
    this.#change(() => {
      this.#databaseFailure = writeFailureReason(error) ?? 'the database does not answer';
      this.#failedBeats += 1;
    });
  }

  /** Logs and reports each change between healthy and unhealthy once. */
  #change(change: () => void): void {
    const before = this.unhealthyReason;
    change();
    const after = this.unhealthyReason;
    if (before === undefined && after !== undefined) {
      this.#deps.log.error({ run: this.#run, reason: after }, 'instance: healthy -> unhealthy');
      for (const listener of this.#listeners) listener.onUnhealthy?.(after);
    } else if (before !== undefined && after === undefined) {
      this.#healthyMs = 0;
      this.#deps.log.info({ run: this.#run, reason: before }, 'instance: unhealthy -> healthy');
      for (const listener of this.#listeners) listener.onRecovered?.();
    }
  }

  #countTick(tickMs: number): void {
    this.#healthyMs += tickMs;
    this.#leases.countHealthyTick(tickMs);
  }

  #noteStall(stalledMs: number): void {
    this.#healthyMs = 0;
    this.#deps.log.warn(
      { stalled_ms: Math.round(stalledMs) },
      'instance: this process was stalled; for a while it marks no server unknown that it never held',
    );
  }
}
