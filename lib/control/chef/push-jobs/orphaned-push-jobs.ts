/**
 * Aborts the unfinished push jobs of organizations that have been deleted: nobody has the right to
 * abort these jobs any more, and their commands must not continue. Every 10 s, on each instance;
 * most rounds are one statement that finds nothing. Owned by the subsystem.
 *
 * The deletion itself is not refused while there are jobs, because users of the organization could
 * prevent it by starting others. A job that is created at the same time is found in a later round.
 */
import { messageOf } from '../../../platform/errors.ts';
import type { Logger } from '../../../platform/log.ts';
import type { Queryable } from '../../../platform/postgres/database.ts';
import type { Clock } from '../../../platform/time/clock.ts';
import { Loop } from '../../../platform/time/loop.ts';
import type { Organizations } from '../../organizations/organizations.ts';
import { PushJobEndedError, PushJobNotFoundError } from '../../push/push-errors.ts';
import type { PushJobs } from '../../push/push-jobs.ts';
import { readUnfinishedPushJobs } from './organization-jobs-store.ts';

interface OrphanedJobsDeps {
  organizations: Pick<Organizations, 'existing'>;
  database: Queryable;
  pushJobs: Pick<PushJobs, 'abort'>;
  clock: Clock;
  log: Logger;
}

const LOOK_MS = 10_000;

export class OrphanedPushJobs {
  readonly #deps: OrphanedJobsDeps;
  readonly #poll: Loop;

  constructor(deps: OrphanedJobsDeps) {
    this.#deps = deps;
    this.#poll = new Loop({
      ...deps,
      what: 'push jobs of deleted organizations: look',
      work: (signal) => this.#round(signal),
      pauseMs: LOOK_MS,
      first: 'pause',
    });
  }

  start(): void {
    this.#poll.start();
  }

  stop(): Promise<void> {
    return this.#poll.stop();
  }

  async #round(signal: AbortSignal): Promise<void> {
    const { database, organizations } = this.#deps;
    const jobs = await readUnfinishedPushJobs(database);
    if (jobs.length === 0) return;
    const existing = await organizations.existing([...new Set(jobs.map(({ organizationUuid }) => organizationUuid))]);
    for (const { id, organizationUuid } of jobs)
      if (!existing.has(organizationUuid) && !signal.aborted) await this.#abort(id, organizationUuid);
  }

  async #abort(id: string, organizationUuid: string): Promise<void> {
    const { log, pushJobs } = this.#deps;
    try {
      await pushJobs.abort(id, { how: 'hard', actor: undefined });
      log.info(
        { push_job: id, organization: organizationUuid },
        'push job: aborting, its organization has been deleted',
      );
    } catch (error) {
      if (error instanceof PushJobEndedError || error instanceof PushJobNotFoundError) return;
      // The next round tries again; a locked job does not delay the others (law 9).
      log.warn(
        { push_job: id, organization: organizationUuid, reason: messageOf(error) },
        'push job: could not be aborted yet',
      );
    }
  }
}
