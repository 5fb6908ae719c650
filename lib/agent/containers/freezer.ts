/**
 * Pauses the processes of a run while something is copied. A resume that fails is repeated until it
 * succeeds: a container that stands still answers nobody and cannot end by itself.
 *
 *     running ──pause──▶ paused ──resume──▶ running
 *                          └── resume failed: 5 times, 200 ms apart, then every 10 s until `stop`
 *
 * The next agent resumes what it finds paused (linux-runtime.ts). Used by linux-runtime.ts.
 */
import { messageOf } from '../../platform/errors.ts';
import type { Logger } from '../../platform/log.ts';
import type { Clock } from '../../platform/time/clock.ts';
import { ContainerError } from './container-errors.ts';
import { runName } from './container-paths.ts';
import type { RunId } from './runtime.ts';

interface FreezerDeps {
  clock: Clock;
  log: Logger;
  command(run: RunId, command: 'pause' | 'resume'): Promise<void>;
}

const RESUMES = 5;
const RESUME_AGAIN_MS = 200;
const RESUME_LATER_MS = 10_000;

export class Freezer {
  readonly #deps: FreezerDeps;
  /** Names of runs that are resumed later. */
  readonly #paused = new Set<string>();
  readonly #stopping = new AbortController();

  constructor(deps: FreezerDeps) {
    this.#deps = deps;
  }

  stop(): void {
    this.#stopping.abort();
  }

  /** The run has ended, or goes on: nobody resumes it any more. */
  forget(run: RunId): void {
    this.#paused.delete(runName(run));
  }

  /** @throws ContainerError if the processes could not be paused, or do not go on yet; the errors of `work` */
  async during(run: RunId, work: () => Promise<void>): Promise<void> {
    await this.#deps.command(run, 'pause');
    try {
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
          log.error(
            { err, container: run.id },
            'containers: processes stand still; the agent tries to resume them again',
          );
          this.#paused.add(runName(run));
          void this.#resumeLater(run);
          throw new ContainerError(
            `The processes of container ${run.id} stand still, and the agent tries again every ${RESUME_LATER_MS / 1_000} s to resume them: ${messageOf(err)}`,
            err,
          );
        }
      }
    }
  }

  async #resumeLater(run: RunId): Promise<void> {
    const { clock, log } = this.#deps;
    const { signal } = this.#stopping;
    const isPaused = () => this.#paused.has(runName(run)) && !signal.aborted;
    for (;;) {
      await clock.sleep(RESUME_LATER_MS, signal);
      if (!isPaused()) return;
      try {
        await this.#deps.command(run, 'resume');
      } catch {
        // The first failure is in the log.
        continue;
      }
      this.forget(run);
      log.info({ container: run.id }, 'containers: processes that stood still go on');
      return;
    }
  }
}
