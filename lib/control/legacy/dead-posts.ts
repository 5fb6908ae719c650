/**
 * Ends the posts of runs that are dead, because no process will receive their outcome. Owned by
 * `legacy-dispatch.ts`.
 */
import type { Logger } from '../../platform/log.ts';
import type { Queryable } from '../../platform/postgres/database.ts';
import type { Clock } from '../../platform/time/clock.ts';
import type { PostOutcomes } from '../tasks/dispatch/post-dispatch.ts';
import { DeadPostingRuns } from './dead-posting-runs.ts';
import { endPosts, readDeadPostingRuns } from './post-store.ts';

interface DeadPostsDeps extends Pick<PostOutcomes, 'onChanged'> {
  clock: Clock;
  log: Logger;
  config: { ownerlessGraceMs: number; slowPollMs: number };
}

const MAX_BATCHES = 20;
/** Missed slow polls after which an observer counts as stalled. */
const MAX_MISSED_POLLS = 3;

export class DeadPosts {
  readonly #deps: DeadPostsDeps;
  readonly #deadRuns: DeadPostingRuns;
  #ended = 0;

  constructor(deps: DeadPostsDeps) {
    this.#deps = deps;
    const { ownerlessGraceMs, slowPollMs } = deps.config;
    this.#deadRuns = new DeadPostingRuns({ graceMs: ownerlessGraceMs, maxGapMs: MAX_MISSED_POLLS * slowPollMs });
  }

  /** Posts that this instance has ended so far. */
  get ended(): number {
    return this.#ended;
  }

  /**
   * Leaves the posts of `mine`: this process moves them to its new run.
   * @throws DatabaseUnavailableError, DatabaseBusyError
   */
  async end(database: Queryable, mine: ReadonlySet<string>): Promise<void> {
    const { clock, log } = this.#deps;
    const dead = this.#deadRuns.seen(await readDeadPostingRuns(database), clock.now());
    const runs = dead.filter((run) => !mine.has(run));
    for (let batches = 0; runs.length > 0 && batches < MAX_BATCHES; batches++) {
      const ids = await endPosts(database, runs);
      if (ids.length === 0) return;
      this.#ended += ids.length;
      log.warn({ tasks: ids }, 'task: ended because the instance that posted it is dead');
      this.#deps.onChanged(ids.map((id) => ({ id, ended: true })));
    }
  }

  /** The database did not answer: perhaps no run could take over posts meanwhile. */
  forget(): void {
    this.#deadRuns.forget();
  }
}
