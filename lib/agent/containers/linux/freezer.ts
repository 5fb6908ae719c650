/**
 * Pauses the processes of a run while something is copied. A resume that fails is repeated until it
 * succeeds: a container that stands still answers nobody and cannot end by itself.
 *
 *     running ──pause──▶ paused ──resume──▶ running
 *                          └── resume failed: 5 times, 200 ms apart, then every 10 s until `stop`,
 *                              or until the next copy, which resumes them at its end
 *
 * A pause that fails is followed by a resume, too: it may have done its work and not answered.
 * The next agent resumes what it finds paused (linux-runtime.ts). Used by linux-runtime.ts.
 */
import { messageOf } from '../../../platform/errors.ts';
import type { Logger } from '../../../platform/log.ts';
import type { Clock } from '../../../platform/time/clock.ts';
import { ContainerError } from '../container-errors.ts';
import type { RunId } from '../runtime.ts';
import { runName } from './container-paths.ts';

interface FreezerDeps {
  clock: Clock;
  log: Logger;
  /** A resume also succeeds if the processes are not paused, or the run has ended. */
  command(run: RunId, command: 'pause' | 'resume'): Promise<void>;
}

interface LaterResume {
  cancelling: AbortController;
  ended: Promise<void>;
}

const RESUMES = 5;
const RESUME_AGAIN_MS = 200;
const RESUME_LATER_MS = 10_000;

export class Freezer {
  readonly #deps: FreezerDeps;
  /** Runs that are resumed later, by name. */
  readonly #later = new Map<string, LaterResume>();
  readonly #stopping = new AbortController();

  constructor(deps: FreezerDeps) {
    this.#deps = deps;
  }

  stop(): void {
    this.#stopping.abort();
  }

  /** Nobody resumes the run any more; resolves when that is so. */
  async forget(run: RunId): Promise<void> {
    const later = this.#later.get(runName(run));
    this.#later.delete(runName(run));
    later?.cancelling.abort();
    await later?.ended;
  }

  /**
   * @throws ContainerError if the processes could not be paused, or do not go on yet; the errors of
   * `work`
   */
  async during(run: RunId, work: () => Promise<void>): Promise<void> {
    await this.forget(run);
    try {
      await this.#deps.command(run, 'pause');
      await work();
    } finally {
      await this.#resume(run);
    }
  }

  async #resume(run: RunId): Promise<void> {
    const { clock, log } = this.#deps;
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await this.#deps.command(run, 'resume');
      } catch (err) {
        if (attempt < RESUMES) await clock.sleep(RESUME_AGAIN_MS, this.#stopping.signal);
        else {
          log.error({ err, container: run.id }, 'containers: processes are still paused; trying again to resume them');
          const cancelling = new AbortController();
          const ended = this.#resumeLater(run, AbortSignal.any([this.#stopping.signal, cancelling.signal]));
          this.#later.set(runName(run), { cancelling, ended });
          throw new ContainerError(
            `The processes of container ${run.id} are still paused, and the agent tries again every ${RESUME_LATER_MS / 1_000} s to resume them: ${messageOf(err)}`,
            err,
          );
        }
      }
    }
  }

  async #resumeLater(run: RunId, signal: AbortSignal): Promise<void> {
    const { clock, log } = this.#deps;
    for (;;) {
      await clock.sleep(RESUME_LATER_MS, signal);
      if (signal.aborted) return;
      try {
        await this.#deps.command(run, 'resume');
      } catch {
        // The first failure is in the log.
        continue;
      }
      if (!signal.aborted) this.#later.delete(runName(run));
      log.info({ container: run.id }, 'containers: paused processes resumed');
      return;
    }
  }
}
