import type { LegacyAgentApi, LegacyAgentTask } from '../../../../lib/control/legacy/legacy-agent-api.ts';
import { LegacyDispatch } from '../../../../lib/control/legacy/legacy-dispatch.ts';
import type { PostedEnd } from '../../../../lib/control/legacy/task-answer.ts';
import type { EndReport, ReportSubject } from '../../../../lib/control/tasks/reports/report.ts';
import { recordReports } from '../../../../lib/control/tasks/reports/report-store.ts';
import { taskEnds } from '../../../../lib/control/tasks/store/task.ts';
import type { PostLimits } from '../../../../lib/control/tasks/store/task-limits.ts';
import { silentLogger } from '../../../../lib/platform/log.ts';
import type { Queryable } from '../../../../lib/platform/postgres/database.ts';
import { systemRandom } from '../../../../lib/platform/random.ts';
import { systemClock } from '../../../../lib/platform/time/clock.ts';
import { createMemoryBus, type MemoryHub } from '../../../support/memory-bus.ts';
import type { Teardown } from '../../../support/postgres.ts';
import { liveRun } from './legacy-seats.ts';

/** Agents reached by this instance. They answer when the test says so. */
export class ScriptedAgents implements Pick<LegacyAgentApi, 'post'> {
  readonly posted: LegacyAgentTask[] = [];
  readonly timeouts: number[] = [];
  readonly #answers = new Map<string, (end: PostedEnd) => void>();

  post(task: LegacyAgentTask, { timeoutMs, signal }: { timeoutMs: number; signal: AbortSignal }): Promise<PostedEnd> {
    const wasSent = !signal.aborted;
    if (wasSent) this.posted.push(task);
    this.timeouts.push(timeoutMs);
    return new Promise((resolve) => {
      const giveUp = () => resolve({ outcome: 'failure', error: wasSent ? taskEnds.senderLost : taskEnds.notTaken });
      if (!wasSent) return giveUp();
      signal.addEventListener('abort', giveUp);
      this.#answers.set(task.id, resolve);
    });
  }

  answer(id: string, end: PostedEnd = { outcome: 'complete', result: {} }): void {
    this.#answers.get(id)?.(end);
  }
}

/** The text of the query of `readPosts`. */
export const READS_POSTS = /select id, server_uuid, attempt, name, params/;
export const CLAIMS_POSTS = /cnapi_claim_for_posts/;
export const FINDS_LOST_POSTS = /id <> all/;
export const READS_WAITING = /as is_full/;
export const READS_DEAD_POSTERS = /end_reason = 'lapsed'/;

/** A database in which some of the statements with this text fail. */
export class Failing implements Queryable {
  readonly #database: Queryable;
  readonly #text: RegExp;
  /** The failure of a statement about these tasks or servers. */
  failure: (ids: readonly string[]) => Error | undefined = () => undefined;
  failed = 0;

  constructor(database: Queryable, text: RegExp) {
    this.#database = database;
    this.#text = text;
  }

  query: Queryable['query'] = (text, values, options) => {
    const error = this.#text.test(text)
      ? this.failure(((values as unknown[] | undefined)?.[1] ?? []) as string[])
      : undefined;
    if (error === undefined) return this.#database.query(text, values, options);
    this.failed += 1;
    return Promise.reject(error);
  };
}

export interface World {
  database: Queryable;
  hub: MemoryHub;
}

/** An instance's posts; `records` says whether ends reach the database at the moment. */
export async function instance(t: Teardown, { database, hub }: World, options: { room?: PostLimits } = {}) {
  const made = {
    run: await liveRun(database),
    agents: new ScriptedAgents(),
    records: true,
    told: 0,
    ended: [] as string[],
  };
  const bus = createMemoryBus({ hub, clock: systemClock, random: systemRandom, log: silentLogger });
  await bus.start();
  const record = (subject: ReportSubject, report: EndReport, acknowledge: () => void) => {
    made.told += 1;
    if (!made.records) return;
    // While another statement has locked the row, nothing is stored: the slow poll reports the end
    // again.
    void recordReports(database, [{ subject, report }]).then(({ locked }) => {
      if (locked.length === 0) acknowledge();
    });
  };
  const posts = new LegacyDispatch({
    database,
    bus,
    agents: made.agents,
    run: () => made.run,
    clock: systemClock,
    log: silentLogger,
    config: { taskOverdueMs: 60_000, ownerlessGraceMs: 5_000, slowPollMs: 5_000 },
    record,
    onChanged: (changed) => made.ended.push(...changed.map(({ id }) => id)),
    ...options,
  });
  posts.start();
  t.teardown(async () => {
    await posts.stop();
    await bus.stop();
  });
  return Object.assign(made, { posts, bus });
}
