/**
 * The feeds of Chef: what happens to one job, and the starts and ends of all jobs of an
 * organization. Each can be continued at any instance. Called by the routes.
 *
 *     job            goes on ──▶ all events, then each as it happens, until the job's end
 *                    ended   ──▶ all events; after a few seconds its summary alone, or what is
 *                                missing after the Last-Event-ID
 *     organization   each start and end from now on, or after the Last-Event-ID; if that is not
 *                    known, `start_of_history` and what happened in the last minute
 */

import { KeyedCounts } from '../../../platform/limiting/keyed-counts.ts';
import { Semaphore } from '../../../platform/limiting/semaphore.ts';
import type { Queryable } from '../../../platform/postgres/database.ts';
import type { Organization } from '../../../protocol/api/documents/organizations.ts';
import { JOB_ENDS } from '../../../protocol/api/push/job-schemas.ts';
import type { LoggedEvent } from '../../events/event.ts';
import { UnknownEventError } from '../../events/event-errors.ts';
import type { Events } from '../../events/events.ts';
import type { ServerSentEvent } from '../../http/route.ts';
import type { Requestor } from '../../organizations/requestor.ts';
import { SharedRead } from '../../push/followers/shared-read.ts';
import type { PushJobs } from '../../push/push-jobs.ts';
import { toChefId, toChefJob } from '../push-jobs/job-shape.ts';
import { type OrganizationJob, readNodeNames, readOrganizationJob } from '../push-jobs/organization-jobs-store.ts';
import { TooManyFeedFollowersError } from '../pushy-errors.ts';
import type { AccessRechecker } from './access-rechecker.ts';
import { feedTime, parseJobEventId, toChefEvent, toStartEvent } from './feed-shape.ts';

interface ChefFeedsDeps {
  database: Queryable;
  pushJobs: { followers: Pick<PushJobs['followers'], 'feed'> };
  events: Pick<Events, 'follow'>;
  clock: { wallTime(): number };
  access: Pick<AccessRechecker, 'hold'>;
  /**
   * How many callers may follow the feeds of one organization on this instance. Callers with a
   * token are counted separately. Default 200.
   */
  maxFollowers?: number;
  /** How many of these one user, client or token may follow concurrently. Default 50. */
  maxPerCaller?: number;
}

interface Follower {
  organization: Organization;
  requestor: Requestor;
  lastEventId: string | undefined;
  /** Whether the follower may see commands and their options. */
  withContents: boolean;
  signal: AbortSignal;
}

/** How long after a job's end its feed can still be read from the beginning. */
const LINGER_MS = 5_000;
const HISTORY_MS = 60_000;
/** An instance has 1,000 followers of jobs, and 1,000 of events. */
const MAX_FOLLOWERS = 200;
/** So that a few callers cannot use up the places of all others. */
const MAX_PER_CALLER = 50;
/** Limits the reads of started jobs, which share database connections with the whole process. */
const CONCURRENT_READS = 2;
const FILTER = { kinds: ['push_job'] };
const ENDS: readonly unknown[] = JOB_ENDS;

export class ChefFeeds {
  readonly #deps: ChefFeedsDeps;
  /** Counts followers by the uuid of their organization, and by caller. */
  readonly #followers = new KeyedCounts();
  /** A job that has started, which all followers of its organization are told about immediately. */
  readonly #started: SharedRead<{ organizationUuid: string; jobId: string }, OrganizationJob | undefined>;
  #refused = 0;

  constructor(deps: ChefFeedsDeps) {
    this.#deps = deps;
    this.#started = new SharedRead(new Semaphore(CONCURRENT_READS), ({ organizationUuid, jobId }) =>
      readOrganizationJob(deps.database, organizationUuid, jobId),
    );
  }

  /** Followers refused because they or their organization had too many. */
  get refused(): number {
    return this.#refused;
  }

  /** @throws TooManyFeedFollowersError, TooManyWaitersError, WaitStoppedError */
  followJob(job: OrganizationJob, follower: Follower): AsyncIterable<ServerSentEvent> {
    const number = parseJobEventId(follower.lastEventId);
    const known = number !== undefined && number <= job.lastEvent ? number : 0;
    const isOver = job.endedMs !== null && job.endedMs > LINGER_MS;
    if (isOver && known <= 1) return this.#summary(job, follower);
    const signal = this.#enter(follower);
    const events = this.#deps.pushJobs.followers.feed(job.id, Math.max(1, known), signal);
    return this.#events(job, events, { ...follower, isNew: known === 0 });
  }

  /**
   * @throws TooManyFeedFollowersError, TooManyFollowersError, InstanceDrainingError,
   * DatabaseUnavailableError
   */
  async followOrganization(follower: Follower): Promise<AsyncIterable<ServerSentEvent>> {
    const { lastEventId } = follower;
    const organizationUuid = follower.organization.uuid;
    const signal = this.#enter(follower);
    if (lastEventId === undefined || lastEventId === '')
      return this.#organizationEvents(
        organizationUuid,
        await this.#deps.events.follow(FILTER, undefined, signal),
        follower,
      );
    const position = /^org-(.{1,40})$/.exec(lastEventId)?.[1];
    try {
      if (position === undefined) throw new UnknownEventError(lastEventId);
      return this.#organizationEvents(
        organizationUuid,
        await this.#deps.events.follow(FILTER, position, signal),
        follower,
      );
    } catch (error) {
      if (!(error instanceof UnknownEventError)) throw error;
      return this.#history(organizationUuid, { ...follower, signal });
    }
  }

  /**
   * Counts a follower until its signal aborts. Returns a signal that aborts then, or before, when
   * the follower may not read the feed any more. @throws TooManyFeedFollowersError
   */
  #enter({ organization: { uuid, name }, requestor, signal }: Follower): AbortSignal {
    const { access, maxFollowers = MAX_FOLLOWERS, maxPerCaller = MAX_PER_CALLER } = this.#deps;
    if (signal.aborted) return signal;
    // Whoever has a token cannot take the places of the organization's users and clients.
    const sharers = requestor.kind === 'token' ? `tokens ${uuid}` : uuid;
    const { tokenUuid, principal } = requestor.actor;
    const caller = tokenUuid ?? principal?.uuid;
    const limits = [
      { key: sharers, limit: maxFollowers, who: `organization '${name}'` },
      ...(caller === undefined
        ? []
        : [{ key: `${uuid} ${caller}`, limit: maxPerCaller, who: `'${requestor.name}' of organization '${name}'` }]),
    ];
    const reached = limits.find(({ key, limit }) => this.#followers.of(key) >= limit);
    if (reached !== undefined) {
      this.#refused += 1;
      throw new TooManyFeedFollowersError(reached.who, reached.limit);
    }
    const feedEnded = new AbortController();
    const release = access.hold(requestor, uuid, () => feedEnded.abort());
    for (const { key } of limits) this.#followers.add(key);
    const leave = () => {
      for (const { key } of limits) this.#followers.add(key, -1);
      release();
      feedEnded.abort();
    };
    signal.addEventListener('abort', leave, { once: true });
    return feedEnded.signal;
  }

  async *#events(
    job: OrganizationJob,
    events: ReturnType<PushJobs['followers']['feed']>,
    { isNew, withContents }: Follower & { isNew: boolean },
  ): AsyncGenerator<ServerSentEvent, void, undefined> {
    if (isNew) yield toStartEvent(job, withContents);
    for await (const event of events) yield toChefEvent(event);
  }

  async *#summary(job: OrganizationJob, { withContents }: Follower): AsyncGenerator<ServerSentEvent, void, undefined> {
    const nodes = await readNodeNames(this.#deps.database, job.id);
    const timestamp = feedTime(job.stateSince.getTime() * 1000);
    yield { id: 'job-1', name: 'summary', data: { timestamp, ...toChefJob(job, { nodes, withContents }) } };
  }

  async #history(organizationUuid: string, follower: Follower): Promise<AsyncIterable<ServerSentEvent>> {
    const { events, clock } = this.#deps;
    const timestamp = feedTime((clock.wallTime() - HISTORY_MS) * 1000);
    const kept = await events.follow(FILTER, { sinceMs: HISTORY_MS }, follower.signal);
    return this.#organizationEvents(organizationUuid, kept, follower, {
      id: 'start_id',
      name: 'start_of_history',
      data: { timestamp },
    });
  }

  async *#organizationEvents(
    organizationUuid: string,
    delivered: Awaited<ReturnType<Events['follow']>>,
    follower: Follower,
    first?: ServerSentEvent,
  ): AsyncGenerator<ServerSentEvent, void, undefined> {
    if (first !== undefined) yield first;
    const times = new DistinctTimes();
    for await (const { position, event } of delivered) {
      const id = `org-${position}`;
      if (event === undefined) yield { id };
      const sent = event && (await this.#organizationEvent(organizationUuid, event, { follower, times, id }));
      if (sent !== undefined) yield sent;
    }
  }

  async #organizationEvent(
    organizationUuid: string,
    event: LoggedEvent,
    { follower, times, id }: { follower: Follower; times: DistinctTimes; id: string },
  ): Promise<ServerSentEvent | undefined> {
    if (event.kind === 'gap') return { id, name: 'start_of_history', data: { timestamp: times.of(event.storedAt) } };
    const { id: jobId, status } = event.body as { id: string; status: string };
    if (event.body.organization !== organizationUuid) return undefined;
    const chefId = toChefId(jobId);
    const timestamp = times.of(event.storedAt);
    if (ENDS.includes(status)) return { id, name: 'job_complete', data: { timestamp, job: chefId, status } };
    if (status !== 'voting') return undefined;
    const row = await this.#started.ask({ organizationUuid, jobId });
    if (row === undefined) return undefined;
    const start = toStartEvent(row, follower.withContents, id);
    return { ...start, data: { ...start.data, timestamp, job: chefId } };
  }
}

/** No two events of a stream have the same time. */
class DistinctTimes {
  #lastUs = 0;

  of(date: Date): string {
    this.#lastUs = Math.max(date.getTime() * 1000, this.#lastUs + 1);
    return feedTime(this.#lastUs);
  }
}
