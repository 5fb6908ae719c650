/**
 * Finds servers that Ur keeps `running` and that say nothing any more, and marks them `unknown`.
 * Any instance decides about any of them, also when the one that received their last message is
 * dead. It counts a silence in its own healthy ticks over reads that the database has answered (law
 * 4). It begins again when the broker cannot be used, and does not count while what it received
 * waits to be stored.
 */
import { chunksOf } from '../../platform/chunks.ts';
import type { Logger } from '../../platform/log.ts';
import type { Queryable } from '../../platform/postgres/database.ts';
import type { Clock } from '../../platform/time/clock.ts';
import type { HealthyTimer } from '../../platform/time/healthy-timer.ts';
import { Loop } from '../../platform/time/loop.ts';
import { TransitionLog } from '../roster/status/transition-log.ts';
import { UnchangedRows } from '../roster/unchanged-rows.ts';
import { readUrRows, recordSilencesOfUr, type UrRow } from './ur-store.ts';

interface UrSilenceDetectorDeps {
  database: Queryable;
  cnapiUuid: string;
  healthyTimer: Pick<HealthyTimer, 'onTick'>;
  /** Whether this instance may now decide about servers that it never held. */
  mayMarkOthersUnknown: () => boolean;
  /** Whether messages of Ur reach this instance, or can reach none. */
  isListening: () => boolean;
  /**
   * Whether this instance has received, or left with the broker, messages that it has not tried to
   * store.
   */
  isBehind: () => boolean;
  config: { urSilenceMs: number; slowPollMs: number };
  clock: Clock;
  log: Logger;
}

const MAX_SERVERS = 50_000;
/** Per statement: bounds its locks and its time. */
const MAX_BATCH = 2_000;

export class UrSilenceDetector {
  readonly #deps: UrSilenceDetectorDeps;
  readonly #rows: UnchangedRows<UrRow>;
  readonly #transitions: TransitionLog;
  readonly #loop: Loop;
  #silent = 0;

  constructor(deps: UrSilenceDetectorDeps) {
    this.#deps = deps;
    this.#rows = new UnchangedRows<UrRow>(deps.config.urSilenceMs, {
      keyOf: ({ serverUuid }) => serverUuid,
      versionOf: ({ epoch, message }) => `${epoch} ${message}`,
    });
    this.#transitions = new TransitionLog(deps);
    const { slowPollMs, urSilenceMs } = deps.config;
    const pauseMs = Math.min(slowPollMs, urSilenceMs);
    this.#loop = new Loop({ ...deps, what: 'ur: the search for silent servers', work: () => this.#poll(), pauseMs });
    deps.healthyTimer.onTick((tickMs) => {
      if (!deps.isListening()) this.#rows.readFailed();
      else if (!deps.isBehind()) this.#rows.countHealthyTick(tickMs);
    });
  }

  /** Servers that Ur kept `running` at the last read. */
  get servers(): number {
    return this.#rows.size;
  }

  /** Servers that this instance found silent. */
  get silent(): number {
    return this.#silent;
  }

  start(): void {
    this.#loop.start();
  }

  stop(): Promise<void> {
    return this.#loop.stop();
  }

  async #poll(): Promise<void> {
    const { cnapiUuid, database, isBehind, isListening, mayMarkOthersUnknown } = this.#deps;
    try {
      const due = this.#rows.read(await readUrRows(database, MAX_SERVERS));
      if (!mayMarkOthersUnknown() || !isListening() || isBehind()) return;
      for (const batch of chunksOf(due, MAX_BATCH)) {
        const silent = await recordSilencesOfUr(database, cnapiUuid, batch);
        this.#silent += silent.length;
        const changes = silent.map((server_uuid) => ({ server_uuid, reason: 'ur-silent' }));
        this.#transitions.write(changes, 'server: running -> unknown');
      }
    } catch (error) {
      this.#rows.readFailed();
      throw error;
    }
  }
}
