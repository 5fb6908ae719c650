/**
 * Carries out this instance's share of the duties: claims free ones, runs their handlers, stores
 * what became of them, and stops immediately when it learns that a duty has another holder. Created
 * by `core.ts`; `duty.ts` draws the states.
 *
 *     hint (a duty was created, a run has ended), or slow poll ──▶ compare ──▶ claim ──▶ work
 *     work meets a slow or unreachable database ──▶ the same work again, after a short pause (law 9)
 *     work ends, fails or leaves ──▶ settle ──▶ over
 *     runRenewed(), or compare finds another holder ──▶ work is aborted and stores nothing
 *     beginDrain() ──▶ claims nothing while others can; handOver(), stop() ──▶ work is aborted, and
 *     the duties are free for other instances
 *
 * Rounds of comparing and claiming run one at a time. So if a row says that this run holds a duty,
 * and the run did not know of it when the round asked, the answer to the claim was lost.
 */
import type { Bus, Subscription } from '../../platform/bus/bus.ts';
import type { Logger } from '../../platform/log.ts';
import { BatchQueue } from '../../platform/postgres/batches/batch-queue.ts';
import type { Queryable } from '../../platform/postgres/database.ts';
import { type Clock, settlesWithin, type Timer } from '../../platform/time/clock.ts';
import { SlowPoll } from '../../platform/waits/slow-poll.ts';
import {
  type DutyHandlers,
  DutyLostError,
  type DutySettlement,
  FreeDuties,
  type HeldDuty,
  type HolderEffect,
  type HolderEvent,
  type HolderState,
  pauseAfterMs,
  roomFor,
  stepHolder,
} from './duty.ts';
import { carryOutWithRetries } from './duty-retries.ts';
import {
  type ClaimedDuty,
  claimDuties,
  deleteEndedDuties,
  readDutyLoad,
  readHeldDuties,
  type SettlementRow,
  settleDuties,
} from './duty-store.ts';

interface DutyKeeperDeps {
  database: Queryable;
  bus: Bus;
  clock: Clock;
  log: Logger;
  config: { slowPollMs: number; slowPollNoBusMs: number };
  /** This instance's current run. */
  run: () => string;
  /** Whether this instance can act: its database answers, and it is not stalled. */
  isHealthy: () => boolean;
  /** Maximum of duties held concurrently. Default 2,000. */
  limit?: number;
  /**
   * A duty that is free for longer may be claimed by any instance, beyond its share. Default 2 s.
   */
  patienceMs?: number;
  /** Work that has not ended this long after an abort counts as ignoring it. Default 30 s. */
  abortWithinMs?: number;
}

interface Held {
  duty: HeldDuty;
  state: HolderState;
  stopping: AbortController;
  /** Settles when the handler has, or when it was not called. */
  work: Promise<void>;
}

interface Settling {
  held: Held;
  settlement: DutySettlement;
}

/** Some duties are free: `{}`. For any instance that has room. */
const DUTIES_TOPIC = 'duties';
const DEFAULT_LIMIT = 2_000;
const MAX_PER_CLAIM = 200;
const MAX_PER_SETTLEMENT = 200;
const DELETE_BATCH = 1_000;
const DEFAULT_PATIENCE_MS = 2_000;
/** Longer than a statement waits for a database that does not answer. */
const DEFAULT_ABORT_WITHIN_MS = 30_000;
/** Half of the time that the owner gives all of `stop`. */
const STOP_WITHIN_MS = 1_000;

/** `held`: at present. The others: since the start. */
export interface DutyStats {
  held: number;
  claimed: number;
  takenOver: number;
  ended: number;
  handedOver: number;
  retried: number;
  failed: number;
  lost: number;
}

export class DutyKeeper {
  readonly #deps: DutyKeeperDeps;
  #handlers: DutyHandlers = {};
  readonly #limit: number;
  readonly #patienceMs: number;
  readonly #abortWithinMs: number;
  readonly #free: FreeDuties;
  readonly #held = new Map<string, Held>();
  /** Unfinished work on this instance by duty, of all generations. */
  readonly #working = new Map<string, Promise<unknown>>();
  readonly #settlements: BatchQueue<Settling>;
  readonly #rounds: SlowPoll;
  #subscription: Subscription | undefined;
  /** Begins the next round, for duties that are not free yet or were left to others. */
  #nextRoundTimer: Timer | undefined;
  #nextRoundAt = Number.POSITIVE_INFINITY;
  /** The last round left free duties to others. */
  #hasUnclaimed = false;
  /** A duty was created here; other instances have not heard of it. */
  #isOfferDue = false;
  #isDraining = false;
  #isLeaving = false;
  readonly #counts = { claimed: 0, takenOver: 0, ended: 0, handedOver: 0, retried: 0, failed: 0, lost: 0 };

  constructor(deps: DutyKeeperDeps) {
    this.#deps = deps;
    this.#limit = deps.limit ?? DEFAULT_LIMIT;
    this.#patienceMs = deps.patienceMs ?? DEFAULT_PATIENCE_MS;
    this.#abortWithinMs = deps.abortWithinMs ?? DEFAULT_ABORT_WITHIN_MS;
    this.#free = new FreeDuties(this.#patienceMs);
    this.#settlements = new BatchQueue<Settling>({
      ...deps,
      what: 'ends and hand-overs of duties',
      keyOf: ({ held: { duty } }) => `${duty.id} ${duty.generation}`,
      maxBatch: MAX_PER_SETTLEMENT,
      work: (batch, database) => this.#settle(batch, database),
    });
    this.#rounds = new SlowPoll({ ...deps, what: 'duties', work: () => this.#round() });
  }

  /** Without a handler, nothing runs. */
  start(handlers: DutyHandlers): void {
    this.#handlers = handlers;
    if (this.#kinds.length === 0) return;
    this.#subscription = this.#deps.bus.subscribe(DUTIES_TOPIC, () => this.trigger());
    this.#rounds.start();
    this.trigger();
  }

  /** A duty was created here. What this instance does not take is offered to the others. */
  offer(): void {
    this.#isOfferDue = true;
    this.trigger();
  }

  /**
   * There may be free duties: a run has ended, another instance offers some, or this one is healthy
   * again.
   */
  trigger(): void {
    this.#rounds.trigger();
  }

  /** This instance's run was declared dead: other instances take over what it held. */
  runRenewed(): void {
    for (const held of [...this.#held.values()]) this.#apply(held, { type: 'lost' });
    this.trigger();
  }

  /** Claims nothing more, unless no instance stays. */
  beginDrain(): void {
    this.#isDraining = true;
  }

  /** Stops all work here and frees it for other instances. */
  handOver(): void {
    this.beginDrain();
    this.#isLeaving = true;
    for (const held of [...this.#held.values()]) this.#apply(held, { type: 'leave' });
  }

  /** Hands over, and waits until that is stored or the database does not take it. */
  async stop(): Promise<void> {
    this.#subscription?.close();
    this.handOver();
    await this.#rounds.stop();
    this.#nextRoundTimer?.cancel();
    await settlesWithin(this.#deps.clock, STOP_WITHIN_MS, Promise.all(this.#working.values()));
    await this.#settlements.finish();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  /**
   * Deletes one batch of the duties that ended more than `days` ago; returns how many. Call it
   * until it returns 0.
   */
  deleteOlderThan(days: number): Promise<number> {
    return deleteEndedDuties(this.#deps.database, days, DELETE_BATCH);
  }

  get #kinds(): string[] {
    return Object.keys(this.#handlers);
  }

  get held(): number {
    return this.#held.size;
  }

  stats(): DutyStats {
    return { held: this.#held.size, ...this.#counts };
  }

  async #round(): Promise<void> {
    const run = this.#deps.run();
    await this.#compare(run);
    if (this.#deps.isHealthy() && !this.#isLeaving) await this.#claim(run);
  }

  /** Finds duties that were taken from this run, and those whose claim had no answer. */
  async #compare(run: string): Promise<void> {
    const known = new Map([...this.#held].map(([id, { duty }]) => [id, duty.generation]));
    const rows = await readHeldDuties(this.#deps.database, run);
    if (run !== this.#deps.run()) return;
    const generations = new Map(rows.map(({ id, generation }) => [id, generation]));
    for (const held of [...this.#held.values()]) {
      const { id, generation } = held.duty;
      // The answer to a settlement itself says whether the duty was lost.
      if (held.state.name !== 'settling' && generations.get(id) !== generation) this.#apply(held, { type: 'lost' });
    }
    for (const duty of rows) if (known.get(duty.id) !== duty.generation) this.#begin(duty);
  }

  async #claim(run: string): Promise<void> {
    const { database, clock, bus } = this.#deps;
    const isOfferDue = this.#isOfferDue;
    this.#isOfferDue = false;
    const { nextFree, ...read } = await readDutyLoad(database, this.#kinds);
    const load = { ...read, overdue: this.#free.overdue(nextFree, clock.now()) };
    for (let isMore = true; isMore; ) {
      const holder = { held: this.#held.size, limit: this.#limit, isDraining: this.#isDraining };
      const limit = this.#isLeaving ? 0 : Math.min(MAX_PER_CLAIM, load.free, roomFor(holder, load));
      const claimed = limit === 0 ? [] : await claimDuties(database, run, { kinds: this.#kinds, limit });
      for (const duty of claimed) this.#noteClaim(duty);
      load.free -= claimed.length;
      load.overdue = Math.max(0, load.overdue - claimed.length);
      isMore = limit > 0 && claimed.length === limit;
    }
    if (load.resumesInMs !== null) this.#pollWithin(load.resumesInMs);
    // Left to others, or locked at the moment.
    this.#hasUnclaimed = load.free > 0;
    if (!this.#hasUnclaimed) return;
    if (isOfferDue) bus.publish(DUTIES_TOPIC, {});
    this.#pollWithin(this.#patienceMs);
  }

  #pollWithin(ms: number): void {
    const { clock } = this.#deps;
    if (this.#nextRoundAt <= clock.now() + ms) return;
    this.#nextRoundTimer?.cancel();
    this.#nextRoundAt = clock.now() + ms;
    this.#nextRoundTimer = clock.after(ms, () => {
      this.#nextRoundAt = Number.POSITIVE_INFINITY;
      this.trigger();
    });
  }

  #noteClaim({ wasTakenOver, takeovers, ...duty }: ClaimedDuty): void {
    this.#counts.claimed += 1;
    if (wasTakenOver) this.#counts.takenOver += 1;
    const { id: duty_id, kind, generation } = duty;
    this.#deps.log.info({ duty_id, kind, generation }, wasTakenOver ? 'duty: taken over' : 'duty: waiting -> held');
    if (wasTakenOver && takeovers > 1)
      this.#deps.log.error(
        { duty_id, kind, takeovers },
        'duty: several holders in a row died; the work may be the cause',
      );
    this.#begin(duty);
  }

  #begin(duty: HeldDuty): void {
    const before = this.#held.get(duty.id);
    // A row with a later generation means that the earlier one is over.
    if (before !== undefined) this.#apply(before, { type: 'lost' });
    const held: Held = { duty, state: { name: 'working' }, stopping: new AbortController(), work: Promise.resolve() };
    this.#held.set(duty.id, held);
    const earlier = this.#working.get(duty.id);
    held.work = this.#carryOut(held, earlier);
    const working = Promise.all([earlier, held.work]).finally(() => {
      if (this.#working.get(duty.id) === working) this.#working.delete(duty.id);
    });
    this.#working.set(duty.id, working);
    // Its run may have been declared dead while the claim was answered.
    if (duty.run !== this.#deps.run()) this.#apply(held, { type: 'lost' });
    else if (this.#isLeaving) this.#apply(held, { type: 'leave' });
  }

  /** Never twice concurrently in this process: a later generation waits, or fails here. */
  async #carryOut(held: Held, earlier: Promise<unknown> | undefined): Promise<void> {
    const { duty, stopping } = held;
    try {
      if (earlier !== undefined && !(await settlesWithin(this.#deps.clock, this.#abortWithinMs, earlier)))
        throw new Error(`the work of an earlier generation of duty ${duty.id} does not stop here`);
      const onRetry = () => {
        this.#counts.retried += 1;
      };
      await carryOutWithRetries({ ...this.#deps, handlers: this.#handlers, onRetry }, duty, stopping.signal);
      this.#apply(held, { type: 'done' });
    } catch (error) {
      if (error instanceof DutyLostError) this.#apply(held, { type: 'lost' });
      else if (held.state.name === 'working') this.#noteFailure(duty, error);
      this.#apply(held, { type: 'failed' });
    }
  }

  #noteFailure({ id: duty_id, kind, generation }: HeldDuty, error: unknown): void {
    this.#counts.failed += 1;
    this.#deps.log.error({ duty_id, kind, generation, err: error }, 'duty: work failed');
  }

  #apply(held: Held, event: HolderEvent): void {
    const from = held.state.name;
    const { state, effects } = stepHolder(held.state, event, held.duty.id);
    held.state = state;
    if (event.type === 'lost' && from !== 'lost' && from !== 'finished') this.#noteLoss(held, from);
    for (const effect of effects) this.#do(held, effect);
    if (state.name === 'finished' && this.#held.get(held.duty.id) === held) this.#held.delete(held.duty.id);
  }

  #noteLoss({ duty: { id: duty_id, kind, generation } }: Held, from: string): void {
    this.#counts.lost += 1;
    this.#deps.log.warn({ duty_id, kind, generation, from }, 'duty: held by another instance');
  }

  #do(held: Held, effect: HolderEffect): void {
    switch (effect.do) {
      case 'abort':
        held.stopping.abort(new Error(`duty ${held.duty.id}: ${effect.reason}`));
        return void this.#expectStop(held);
      case 'settle':
        return this.#settlements.add({ held, settlement: effect.settlement });
      default:
        return effect satisfies never;
    }
  }

  async #expectStop({ duty: { id: duty_id, kind, generation }, work }: Held): Promise<void> {
    if (await settlesWithin(this.#deps.clock, this.#abortWithinMs, work)) return;
    this.#deps.log.error({ duty_id, kind, generation }, 'duty: work does not stop when aborted');
  }

  /** Returns those whose rows are locked. Duties that were lost meanwhile are left alone. */
  async #settle(batch: readonly Settling[], database: Queryable): Promise<Settling[]> {
    const left: Settling[] = [];
    const current = batch.filter(({ held }) => held.state.name === 'settling');
    for (const [run, group] of Map.groupBy(current, ({ held }) => held.duty.run)) {
      const { settled, locked } = await settleDuties(database, run, group.map(toRow));
      for (const settling of group) {
        if (locked.has(settling.held.duty.id)) left.push(settling);
        else this.#noteSettled(settling, settled.has(settling.held.duty.id));
      }
    }
    const isSomeHandedOver = current.some(({ settlement }) => settlement.kind === 'hand-over');
    if (isSomeHandedOver) this.#deps.bus.publish(DUTIES_TOPIC, {});
    // Polls now: there may be room for duties that were left, and the next pause is read.
    if (this.#hasUnclaimed || isSomeHandedOver) this.trigger();
    return left;
  }

  #noteSettled({ held, settlement }: Settling, isStored: boolean): void {
    if (isStored) {
      if (settlement.kind === 'end') this.#counts.ended += 1;
      else this.#counts.handedOver += 1;
      const { id: duty_id, kind, generation } = held.duty;
      this.#deps.log.info({ duty_id, kind, generation, settlement }, 'duty: no longer held');
    }
    this.#apply(held, { type: isStored ? 'stored' : 'lost' });
  }
}

function toRow({ held, settlement }: Settling): SettlementRow {
  const { id, generation, failures } = held.duty;
  const hasFailed = settlement.kind === 'hand-over' && settlement.hasFailed;
  return { id, generation, settlement, pauseMs: hasFailed ? pauseAfterMs(failures) : 0 };
}
