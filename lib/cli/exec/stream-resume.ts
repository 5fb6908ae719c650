/**
 * When a stream that broke is opened again: after growing pauses with jitter, so that the callers
 * of an instance that ended do not return at the same moment, and a bounded number of times. A try
 * that brought nothing new counts, even if its stream could be opened; after one that did, the
 * count starts again. Used by `interactive-exec.ts`.
 */
import { ApiError, CredentialsError, UnexpectedAnswerError } from '../../client/client-errors.ts';
import type { Random } from '../../platform/random.ts';
import type { Clock } from '../../platform/time/clock.ts';

interface StreamResumeDeps {
  clock: Clock;
  random: Random;
  /** Resolves when the caller wants no more. */
  stopped: Promise<number>;
  /** Counts what has arrived; grows with each piece. */
  arrived(): number;
}

/** Together some 30 s: the agent may be looking for another instance. */
const TRIES = 12;
const FIRST_PAUSE_MS = 500;
const MAX_PAUSE_MS = 4_000;

export class StreamResume {
  readonly #deps: StreamResumeDeps;
  #failed = 0;
  #seen = 0;

  constructor(deps: StreamResumeDeps) {
    this.#deps = deps;
    this.#seen = deps.arrived();
  }

  /**
   * Starts it again after a pause. Returns the exit code if the caller wants no more, and
   * undefined after too many tries that brought nothing. @throws the error of the last try, or one
   * that no further try can avoid
   */
  async again<Started extends object>(start: () => Promise<Started>): Promise<Started | number | undefined> {
    const { clock, stopped, arrived } = this.#deps;
    if (arrived() > this.#seen) this.#failed = 0;
    this.#seen = arrived();
    while (this.#failed < TRIES) {
      const isStopped = await Promise.race([stopped, clock.sleep(this.#pauseMs()).then(() => undefined)]);
      if (isStopped !== undefined) return isStopped;
      this.#failed += 1;
      try {
        return await start();
      } catch (error) {
        if (this.#failed >= TRIES || !canPass(error)) throw error;
      }
    }
    return undefined;
  }

  /** Between half of it and all of it. */
  #pauseMs(): number {
    const mostMs = Math.min(FIRST_PAUSE_MS * 2 ** this.#failed, MAX_PAUSE_MS);
    return (mostMs * (1 + this.#deps.random.fraction())) / 2;
  }
}

/** Conflicts and limits pass with time; other refusals of a request do not. */
const PASSING: ReadonlySet<number> = new Set([408, 409, 429]);

function canPass(error: unknown): boolean {
  if (error instanceof ApiError) return error.statusCode >= 500 || PASSING.has(error.statusCode);
  return !(error instanceof CredentialsError || error instanceof UnexpectedAnswerError);
}
