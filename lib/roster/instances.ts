/**
 * This instance among its siblings: raises its run's beat each `beatMs` on a connection that does nothing else, watches
 * the others' beats, and declares runs dead whose lease has lapsed. It is also the judge of whether this process is fit to
 * judge: whether the database is there, and whether it has stood long enough since it last began to accept agents.
 *
 *     joining ──row inserted──▶ live ──beat finds the run dead──▶ renewing ──new run's row inserted──▶ live
 *     live, well ──two failed beats, or no healthy tick for leaseMs at two beats──▶ live, sick ──neither──▶ live, well
 *     any ──stop()──▶ ended (the run marks itself dead; no verdicts)
 */
import { DatabaseUnavailableError, messageOf } from '../errors.ts';
import type { Logger } from '../log.ts';
import type { Queryable } from '../moray/database.ts';
import type { Clock } from '../ports/clock.ts';
import type { Random } from '../ports/random.ts';
import {
  type DrainAnswer,
  declareLapsed,
  drainRun,
  endRun,
  type InstanceIdentity,
  type InstanceRow,
  insertRun,
  raiseBeat,
  readLive,
} from './instance-store.ts';
import { LeaseObserver } from './lease.ts';
import type { Ticker } from './ticker.ts';

export interface InstancesTimes {
  beatMs: number;
  leaseMs: number;
  silenceMs: number;
  startGraceMs: number;
}

export interface InstancesDeps {
  /** A database of one connection, short timeouts, used by nothing else. */
  database: Queryable;
  cnapiUuid: string;
  /** Where this instance is reached; known once it listens. */
  identity: () => InstanceIdentity;
  ticker: Ticker;
  clock: Clock;
  random: Random;
  log: Logger;
  times: InstancesTimes;
  /** How many agents this instance holds now. */
  countAgents: () => number;
}

export interface InstancesListener {
  /** The run was found dead; `newRun` is live from now on. */
  runRenewed?(oldRun: string, newRun: string): void;
  /** It cannot act for its agents now. */
  fellSick?(trouble: string): void;
  recovered?(): void;
  /** Its row says that it is to leave. */
  toldToDrain?(): void;
  /** Runs that were live a read ago are not any more. */
  runsEnded?(runs: readonly string[]): void;
}

const BEATS_TO_FALL_SICK = 2;

export class Instances {
  readonly #deps: InstancesDeps;
  readonly #observer: LeaseObserver;
  readonly #listeners: InstancesListener[] = [];
  readonly #stopping = new AbortController();
  #run: string;
  #live: InstanceRow[] = [];
  #startedAt: Date | null = null;
  #isDraining = false;
  #failedBeats = 0;
  #stalledBeats = 0;
  #standingMs = 0;
  #loop: Promise<void> | undefined;

  constructor(deps: InstancesDeps) {
    this.#deps = deps;
    this.#observer = new LeaseObserver(deps.times.leaseMs);
    this.#run = deps.random.uuid();
    deps.ticker.onTick((tickMs) => this.#countTick(tickMs));
    deps.ticker.onStall(deps.times.silenceMs, (stalledMs) => this.#noteStall(stalledMs));
  }

  listen(listener: InstancesListener): void {
    this.#listeners.push(listener);
  }

  get run(): string {
    return this.#run;
  }

  get cnapiUuid(): string {
    return this.#deps.cnapiUuid;
  }

  /** What keeps this instance from acting for its agents, for people; undefined while it is well. */
  get trouble(): string | undefined {
    if (!this.isDatabaseWell) return 'the database does not answer';
    return this.#stalledBeats < BEATS_TO_FALL_SICK ? undefined : 'this process cannot keep up with its work';
  }

  /** False after two failed beats, until one succeeds. */
  get isDatabaseWell(): boolean {
    return this.#failedBeats < BEATS_TO_FALL_SICK;
  }

  /** Whether this instance has stood long enough, without a stall or the database away, to judge servers it never held. */
  get mayJudgeStrangers(): boolean {
    return this.trouble === undefined && this.#standingMs >= this.#deps.times.startGraceMs;
  }

  /** The live runs at the last successful read. */
  get live(): readonly InstanceRow[] {
    return this.#live;
  }

  /** Says to all that this instance is about to leave. */
  async announceDrain(): Promise<DrainAnswer> {
    const answer = await drainRun(this.#deps.database, this.#run);
    if (answer === 'draining') this.#isDraining = true;
    return answer;
  }

  /** How long a run's beat has stood still as seen from here, in milliseconds. */
  leaseAgeMs(run: string): number {
    return this.#observer.ageMs(run) ?? 0;
  }

  /** Inserts this run's row and reads the others', waiting for the database until it is there or `signal` aborts. */
  async start(signal: AbortSignal): Promise<void> {
    const ended = AbortSignal.any([signal, this.#stopping.signal]);
    while (!ended.aborted) {
      try {
        await this.#insertRun();
        await this.#observe();
        this.#standingMs = 0;
        this.#loop = this.#beatUntilStopped();
        return;
      } catch (error) {
        if (!(error instanceof DatabaseUnavailableError)) throw error;
        await this.#deps.clock.sleep(this.#deps.times.beatMs, ended);
      }
    }
  }

  async stop(): Promise<void> {
    if (this.#stopping.signal.aborted) return this.#loop;
    this.#stopping.abort();
    await this.#loop;
    if (this.#loop === undefined) return;
    await endRun(this.#deps.database, this.#run).catch((error: unknown) => {
      this.#deps.log.warn(
        { run: this.#run, reason: messageOf(error) },
        'instance: run could not be marked ended; its lease will lapse',
      );
    });
  }

  async #beatUntilStopped(): Promise<void> {
    const { clock, times } = this.#deps;
    while (!this.#stopping.signal.aborted) {
      const beganAt = clock.now();
      await this.#beatOnce();
      await clock.sleep(Math.max(0, times.beatMs - (clock.now() - beganAt)), this.#stopping.signal);
    }
  }

  async #beatOnce(): Promise<void> {
    this.#noteStalling();
    if (this.#stalledBeats >= BEATS_TO_FALL_SICK) {
      // Its lease is to lapse: nobody is judged here, and its agents have been asked to leave.
      this.#observer.readFailed();
      return;
    }
    try {
      const row = await raiseBeat(this.#deps.database, this.#run, this.#deps.countAgents());
      if (row === undefined) await this.#renewRun();
      await this.#observe();
      if (row?.isDraining) this.#toldToDrain();
      // A new run's row does not know it yet.
      else if (this.#isDraining) await this.announceDrain();
      this.#noteSuccess();
    } catch (error) {
      this.#observer.readFailed();
      this.#noteFailure(error);
    }
  }

  async #observe(): Promise<void> {
    const live = await readLive(this.#deps.database);
    const runs = new Set(live.map(({ run }) => run));
    const ended = this.#live.filter(({ run }) => !runs.has(run)).map(({ run }) => run);
    this.#live = live;
    const lapsed = this.#observer.readBeats(live.filter(({ run }) => run !== this.#run));
    if (lapsed.length > 0) ended.push(...(await this.#declare(lapsed)));
    if (ended.length > 0) for (const listener of this.#listeners) listener.runsEnded?.(ended);
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
    const newRun = this.#deps.random.uuid();
    await insertRun(this.#deps.database, newRun, this.#deps.identity(), this.#startedAt);
    this.#run = newRun;
    this.#standingMs = 0;
    this.#deps.log.warn(
      { old_run: oldRun, new_run: newRun },
      'instance: this run was declared dead, going on under a new one',
    );
    for (const listener of this.#listeners) listener.runRenewed?.(oldRun, newRun);
  }

  #toldToDrain(): void {
    if (this.#isDraining) return;
    this.#isDraining = true;
    for (const listener of this.#listeners) listener.toldToDrain?.();
  }

  async #insertRun(): Promise<void> {
    const identity = this.#deps.identity();
    this.#startedAt = await insertRun(this.#deps.database, this.#run, identity, this.#startedAt);
    this.#deps.log.info({ run: this.#run, url: identity.url }, 'instance: joining -> live');
  }

  #noteStalling(): void {
    const isStalled = this.#deps.ticker.sinceHealthyMs > this.#deps.times.leaseMs;
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
    if (error instanceof DatabaseUnavailableError)
      log.debug({ run: this.#run, reason: messageOf(error) }, 'instance: beat failed');
    else log.error({ run: this.#run, err: error }, 'instance: a beat failed that should not');
    this.#change(() => {
      this.#failedBeats += 1;
    });
  }

  /** Says each edge between well and sick once. */
  #change(change: () => void): void {
    const before = this.trouble;
    change();
    const after = this.trouble;
    if (before === undefined && after !== undefined) {
      this.#deps.log.error({ run: this.#run, trouble: after }, 'instance: well -> sick');
      for (const listener of this.#listeners) listener.fellSick?.(after);
    } else if (before !== undefined && after === undefined) {
      this.#standingMs = 0;
      this.#deps.log.info({ run: this.#run, trouble: before }, 'instance: sick -> well');
      for (const listener of this.#listeners) listener.recovered?.();
    }
  }

  #countTick(tickMs: number): void {
    this.#standingMs += tickMs;
    this.#observer.countHealthyTick(tickMs);
  }

  #noteStall(stalledMs: number): void {
    this.#standingMs = 0;
    this.#deps.log.warn(
      { stalled_ms: Math.round(stalledMs) },
      'instance: this process stood still; it judges nobody it never held for a while',
    );
  }
}
