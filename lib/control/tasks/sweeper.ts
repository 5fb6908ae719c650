/**
 * The slow poll of tasks. It has both dispatches do the work whose hints were lost, advances the
 * tick of the zone (deadlines/deadline-counter.ts), and ends tasks that no agent takes or will
 * report. Two instances may do this at the same time: the roster's row or the attempt fences each
 * statement (docs/design/tasks.md). Driven by `Tasks`.
 */
import { chunksOf } from '../../platform/chunks.ts';
import { DatabaseUnavailableError } from '../../platform/errors.ts';
import type { Logger } from '../../platform/log.ts';
import type { Database } from '../../platform/postgres/database.ts';
import { runEachStep } from '../../platform/postgres/each-step.ts';
import type { Clock } from '../../platform/time/clock.ts';
import { DeadlineCounter, tickLagMs } from './deadlines/deadline-counter.ts';
import { advanceTicks, recordFullServers, type SweepOptions, sweepTasks } from './deadlines/deadline-store.ts';
import type { PostDispatch } from './dispatch/post-dispatch.ts';
import type { SessionDispatch } from './dispatch/session-dispatch.ts';
import type { ChangedTask } from './store/change-result.ts';

interface SweeperDeps {
  database: Database;
  clock: Clock;
  log: Logger;
  config: { taskStartByMs: number; taskOverdueMs: number; slowPollMs: number };
  sessionDispatch: Pick<SessionDispatch, 'poll' | 'endClaimPeriod'>;
  postDispatch: Pick<PostDispatch, 'poll' | 'endClaimPeriod' | 'hasRoom'>;
  onChanged: (changed: readonly ChangedTask[]) => void;
}

const MAX_SWEEP_BATCHES = 20;
/** How many servers without an answered claim one statement stores. */
const MAX_RECORDED_AT_ONCE = 2_000;

export class Sweeper {
  readonly #deps: SweeperDeps;
  /** Since when the database has answered every poll, on this process's clock. */
  #answersSince: number | undefined;
  readonly #ticks: DeadlineCounter;
  /**
   * When a task is queued, the counter may lag by this time and then catch up in one step. The
   * deadline includes the lag, so no task is swept early.
   */
  readonly #tickLagMs: number;
  #swept = 0;

  constructor(deps: SweeperDeps) {
    this.#deps = deps;
    this.#tickLagMs = tickLagMs(deps.config);
    this.#ticks = new DeadlineCounter(this.#tickLagMs);
  }

  /** How many tasks this instance has ended. */
  get swept(): number {
    return this.#swept;
  }

  /** @throws DatabaseUnavailableError, DatabaseBusyError */
  async poll(): Promise<void> {
    const { sessionDispatch, postDispatch } = this.#deps;
    void postDispatch.poll();
    let isNoted = false;
    const note = async () => {
      await this.#noteUnansweredClaims();
      isNoted = true;
    };
    const sweep = () => this.#sweep({ mayEndQueued: isNoted });
    try {
      await runEachStep([() => this.#advanceTicks(), note, () => sessionDispatch.poll(), sweep]);
    } catch (error) {
      // Otherwise one slow or locked statement would stop the deadlines of all tasks.
      if (error instanceof DatabaseUnavailableError) {
        this.#answersSince = undefined;
        this.#ticks.forget();
      }
      throw error;
    }
  }

  /** The zone's time advances while any instance is healthy. */
  async #advanceTicks(): Promise<void> {
    const { clock, database } = this.#deps;
    const proposal = this.#ticks.propose(clock.now());
    const tick = await advanceTicks(database, proposal);
    this.#ticks.answered(proposal, tick, clock.now());
  }

  /**
   * Claims fail, or do not begin: what is queued for these servers has no chance to be taken, and
   * gets its whole time again, whichever instance sweeps.
   */
  async #noteUnansweredClaims(): Promise<void> {
    const { database, sessionDispatch, postDispatch } = this.#deps;
    const servers = [...sessionDispatch.endClaimPeriod(), ...postDispatch.endClaimPeriod()];
    for (const some of chunksOf(servers, MAX_RECORDED_AT_ONCE)) await recordFullServers(database, some);
  }

  /**
   * No agent could take or report anything while the database was unreachable, so waiting tasks get
   * their whole time again (law 4).
   */
  #sweepOptions(): SweepOptions {
    const { clock, config, postDispatch } = this.#deps;
    const { taskStartByMs, taskOverdueMs } = config;
    const now = clock.now();
    this.#answersSince ??= now;
    const answeredMs = now - this.#answersSince;
    return {
      startByMs: answeredMs < taskStartByMs ? undefined : taskStartByMs + this.#tickLagMs,
      overdueMs: answeredMs < taskOverdueMs ? undefined : taskOverdueMs,
      hasRoomForPosts: postDispatch.hasRoom,
    };
  }

  async #sweep({ mayEndQueued }: { mayEndQueued: boolean }): Promise<void> {
    const { database, log, onChanged } = this.#deps;
    const all = this.#sweepOptions();
    const options = mayEndQueued ? all : { ...all, startByMs: undefined };
    for (let batches = 0; batches < MAX_SWEEP_BATCHES; batches++) {
      const ids = await sweepTasks(database, options);
      if (ids.length === 0) return;
      this.#swept += ids.length;
      log.warn({ tasks: ids }, 'task: ended overdue tasks');
      onChanged(ids.map((id) => ({ id, ended: true })));
    }
  }
}
