/**
 * Records the outcome of the claims for each server. Used by both dispatches.
 *
 * - Servers to claim for again after a short pause, because a row was locked or a limit was
 *   reached. While a server's row stays locked, its pause doubles.
 * - Servers without an answered claim: their claims fail or do not begin, or their rows stay
 *   locked. Their queued tasks have no chance to be taken, so their time to start must not run (law
 *   9). The slow poll of tasks reads the servers whose claims had no answer for a whole period.
 */
import { isTemporary } from '../../../platform/errors.ts';
import type { Clock, Timer } from '../../../platform/time/clock.ts';

/** A row is usually locked for some milliseconds only. */
const PAUSE_MS = 50;
const LONGEST_PAUSE_MS = 3_200;

export class ClaimProgress {
  readonly #clock: Clock;
  readonly #claimFor: (servers: readonly string[]) => void;
  /** The next pause of each server that was held up and not answered since. */
  readonly #pauses = new Map<string, number>();
  /** Servers in a pause, by its length: those of one length end together. */
  readonly #waiting = new Map<number, { servers: Set<string>; timer: Timer }>();
  /** Servers without an answer since they were wanted. */
  readonly #wanted = new Set<string>();
  /** Servers among them that were wanted before this period. */
  #wantedEarlier = new Set<string>();
  /** Servers whose last claim failed in a way that no repetition helps. */
  readonly #refused = new Set<string>();

  constructor(clock: Clock, claimFor: (servers: readonly string[]) => void) {
    this.#clock = clock;
    this.#claimFor = claimFor;
  }

  /** Claims for these servers are to begin. */
  wanted(servers: Iterable<string>): void {
    for (const serverUuid of servers) if (!this.#refused.has(serverUuid)) this.#wanted.add(serverUuid);
  }

  /** The claims of these servers were answered and are not held up: their next pause is short. */
  answered(servers: Iterable<string>): void {
    for (const serverUuid of servers) {
      this.#pauses.delete(serverUuid);
      this.#refused.delete(serverUuid);
      this.#noteAnswered(serverUuid);
    }
  }

  /** Claims for them again after a pause. */
  heldUp(servers: readonly string[]): void {
    for (const serverUuid of new Set(servers)) {
      this.#noteNotRefused(serverUuid);
      const pauseMs = this.#pauses.get(serverUuid) ?? PAUSE_MS;
      this.#pauses.set(serverUuid, Math.min(2 * pauseMs, LONGEST_PAUSE_MS));
      this.#paused(pauseMs).add(serverUuid);
    }
  }

  /**
   * A claim for these servers failed; throws the error on. One that no repetition helps counts as
   * an answer, also while it is repeated: otherwise the tasks of its server would have no end.
   */
  failed(servers: readonly string[], error: unknown): never {
    const [serverUuid] = servers;
    if (isTemporary(error)) for (const one of servers) this.#noteNotRefused(one);
    else if (servers.length === 1 && serverUuid !== undefined) {
      this.#refused.add(serverUuid);
      this.#noteAnswered(serverUuid);
    }
    throw error;
  }

  /** Ends a period. Returns the servers that had no answer in all of it. */
  endPeriod(): string[] {
    const servers = [...this.#wantedEarlier];
    this.#wantedEarlier = new Set(this.#wanted);
    return servers;
  }

  stop(): void {
    for (const { timer } of this.#waiting.values()) timer.cancel();
  }

  /**
   * Forgets the refusal: the server waits for another reason now, so it is wanted like any other.
   */
  #noteNotRefused(serverUuid: string): void {
    if (this.#refused.delete(serverUuid)) this.#wanted.add(serverUuid);
  }

  #noteAnswered(serverUuid: string): void {
    this.#wanted.delete(serverUuid);
    this.#wantedEarlier.delete(serverUuid);
  }

  #paused(pauseMs: number): Set<string> {
    const waiting = this.#waiting.get(pauseMs);
    if (waiting !== undefined) return waiting.servers;
    const servers = new Set<string>();
    const timer = this.#clock.after(pauseMs, () => {
      this.#waiting.delete(pauseMs);
      this.#claimFor([...servers]);
    });
    this.#waiting.set(pauseMs, { servers, timer });
    return servers;
  }
}
