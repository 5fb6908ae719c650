/**
 * Watches the servers of old agents, which post their heartbeats to whichever instance DNS gives them: hears the posts,
 * has them recorded, follows what the other instances record, and says `unknown` of those that were silent everywhere. Any
 * instance judges any such server, also when the one that heard it last is dead; none does that has not stood long enough
 * (law 4). Per period it runs one statement for all its sightings and one read; a new server's first is written at once.
 * docs/design.md section 5, "Old agents". What may fail is the database: then every silence starts anew.
 */
import { messageOf } from '../errors.ts';
import type { Logger } from '../log.ts';
import type { Queryable } from '../moray/database.ts';
import type { Clock } from '../ports/clock.ts';
import type { Ticker } from '../roster/ticker.ts';
import { readSightedRows, recordSightings, recordSilences } from './sighting-store.ts';
import { type HeardSighting, Sightings } from './sightings.ts';

export interface ObserverTimes {
  oldHeartbeatLifetimeMs: number;
  oldSightingsMs: number;
  oldGraceMs: number;
}

export interface ObserverDeps {
  /** A database of one connection, short timeouts, used by nothing else. */
  database: Queryable;
  cnapiUuid: string;
  times: ObserverTimes;
  ticker: Ticker;
  /** Whether servers that this instance never held may be judged now. */
  mayJudgeStrangers: () => boolean;
  clock: Clock;
  log: Logger;
}

/** Since the start of this instance. */
export interface ObserverStats {
  /** Servers that a sighting of this instance made `running`. */
  returned: number;
  /** Servers that this instance found silent. */
  silent: number;
  /** Servers that were silent here while another instance had heard them. */
  usurped: number;
  recorded: number;
  failedWrites: number;
  /** Posts not looked at: too many new servers at once, or too many servers. */
  dropped: number;
}

const MAX_SERVERS = 100_000;
const MAX_NEW = 1_000;
/** Of one statement: bounds its locks and its time. */
const MAX_BATCH = 2_000;
/** Between two statements for urgent sightings, however many come. */
const MIN_PAUSE_MS = 100;
const RETRY_MS = 1_000;

export class Observer {
  readonly stats: ObserverStats = { returned: 0, silent: 0, usurped: 0, recorded: 0, failedWrites: 0, dropped: 0 };
  readonly #deps: ObserverDeps;
  readonly #sightings: Sightings;
  readonly #stopping = new AbortController();
  #wake = new AbortController();
  #nextRoundAt = 0;
  #isFailing = false;
  #loop: Promise<void> | undefined;

  constructor(deps: ObserverDeps) {
    const { oldHeartbeatLifetimeMs: lifetimeMs, oldSightingsMs, oldGraceMs } = deps.times;
    const silenceMs = lifetimeMs + oldSightingsMs + oldGraceMs;
    this.#deps = deps;
    this.#sightings = new Sightings({ lifetimeMs, silenceMs, maxServers: MAX_SERVERS, maxNew: MAX_NEW });
    deps.ticker.onTick((tickMs) => {
      if (this.#sightings.countHealthyTick(tickMs) && deps.mayJudgeStrangers()) this.#wake.abort();
    });
  }

  /** Servers whose heartbeats came here lately. */
  get heartbeating(): number {
    return this.#sightings.heard;
  }

  /** For the metrics, under the reference's names where it counts the same. */
  counters(): Record<string, number> {
    const { returned, silent, usurped, recorded, failedWrites, dropped } = this.stats;
    return {
      reconciler_new_heartbeaters_total: returned,
      reconciler_stale_heartbeaters_total: silent,
      reconciler_usurped_heartbeaters_total: usurped,
      reconciler_status_put_total: recorded,
      reconciler_status_put_failures_total: failedWrites,
      old_heartbeats_dropped_total: dropped,
    };
  }

  start(): void {
    this.#loop = this.#watchUntilStopped();
  }

  /** Records what was heard last; writes no verdict. */
  async stop(): Promise<void> {
    if (this.#stopping.signal.aborted) return this.#loop;
    this.#stopping.abort();
    this.#wake.abort();
    if (this.#loop === undefined) return;
    await this.#loop;
    await this.#record(this.#take('all')).catch((error: unknown) => {
      this.#deps.log.warn({ reason: messageOf(error) }, 'old agents: their last heartbeats were not recorded');
    });
  }

  /** An old agent posted a heartbeat. Costs a look at a table; anything else is done later, for all at once. */
  heartbeat(serverUuid: string): void {
    if (this.#hear(serverUuid) === 'urgent') this.#wake.abort();
  }

  /** A server was made by a post of its agent: `running` when this returns. @throws DatabaseUnavailableError */
  async created(serverUuid: string): Promise<void> {
    this.#hear(serverUuid);
    await this.#record(this.#take('all').filter((one) => one.serverUuid === serverUuid));
  }

  #hear(serverUuid: string): 'noted' | 'urgent' | 'dropped' {
    const outcome = this.#sightings.hear(serverUuid, this.#deps.ticker.wellAt);
    if (outcome === 'dropped') this.stats.dropped += 1;
    return outcome;
  }

  #take(which: 'urgent' | 'all'): HeardSighting[] {
    return this.#sightings.take(which, this.#deps.clock.now());
  }

  async #watchUntilStopped(): Promise<void> {
    const { clock } = this.#deps;
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      this.#wake = new AbortController();
      try {
        await this.#turn();
        await clock.sleep(MIN_PAUSE_MS, signal);
      } catch (error) {
        this.#noteFailure(error);
        await clock.sleep(RETRY_MS, signal);
      }
      if (!signal.aborted) await clock.sleep(Math.max(0, this.#nextRoundAt - clock.now()), this.#wake.signal);
    }
  }

  /** The urgent at once; once per period all sightings, and then a look at everybody's. */
  async #turn(): Promise<void> {
    const { clock, database, times } = this.#deps;
    const isRound = clock.now() >= this.#nextRoundAt;
    await this.#record(this.#take(isRound ? 'all' : 'urgent'));
    if (isRound) {
      this.#sightings.readRows(await readSightedRows(database, MAX_SERVERS));
      this.#nextRoundAt = clock.now() + times.oldSightingsMs;
    }
    await this.#judge();
    this.#isFailing = false;
  }

  async #record(sightings: readonly HeardSighting[]): Promise<void> {
    const { cnapiUuid, database, log } = this.#deps;
    for (let at = 0; at < sightings.length; at += MAX_BATCH) {
      const batch = sightings.slice(at, at + MAX_BATCH);
      const answers = await recordSightings(database, cnapiUuid, batch);
      this.#sightings.recorded(batch, answers);
      this.stats.recorded += answers.length;
      for (const { serverUuid, epoch } of answers.filter(({ cameBack }) => cameBack)) {
        this.stats.returned += 1;
        log.info({ server_uuid: serverUuid, epoch, reason: 'legacy-heartbeat' }, 'server: unknown -> running');
      }
    }
  }

  async #judge(): Promise<void> {
    const { cnapiUuid, database, log, mayJudgeStrangers } = this.#deps;
    if (this.#stopping.signal.aborted || !mayJudgeStrangers()) return;
    const due = this.#sightings.due();
    for (let at = 0; at < due.length; at += MAX_BATCH) {
      const batch = due.slice(at, at + MAX_BATCH);
      const applied = new Set(await recordSilences(database, cnapiUuid, batch));
      this.#sightings.judged(batch, applied);
      this.stats.silent += applied.size;
      this.stats.usurped += batch.length - applied.size;
      for (const server_uuid of applied)
        log.info({ server_uuid, reason: 'legacy-silent' }, 'server: running -> unknown');
    }
  }

  #noteFailure(error: unknown): void {
    this.stats.failedWrites += 1;
    this.#sightings.readFailed();
    this.#nextRoundAt = 0;
    if (!this.#isFailing)
      this.#deps.log.warn({ reason: messageOf(error) }, 'old agents: sightings cannot be recorded, kept for later');
    this.#isFailing = true;
  }
}
