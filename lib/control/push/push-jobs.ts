/**
 * Push jobs of an instance: what callers ask of them, and the two drivers behind it. The messenger
 * talks to this instance's agents; the coordinator carries out the jobs whose duties this instance
 * holds. The followers are told what happens. Made by `core.ts`.
 */
import type { Bus } from '../../platform/bus/bus.ts';
import { invalidParameter } from '../../platform/errors.ts';
import type { Logger } from '../../platform/log.ts';
import type { BucketStore } from '../../platform/moray/bucket-store.ts';
import type { Queryable } from '../../platform/postgres/database.ts';
import type { Random } from '../../platform/random.ts';
import type { Clock } from '../../platform/time/clock.ts';
import { publishChanges } from '../../platform/waits/changes.ts';
import type { ServerGroup } from '../../protocol/api/documents/server-groups.ts';
import { shareHint } from '../../protocol/api/push/job-rules.ts';
import { MAX_PUSH_NODES } from '../../protocol/limits.ts';
import type { AuditRecordPart, ExpiryPart } from '../audit-part.ts';
import type { Tasks } from '../tasks/tasks.ts';
import {
  type AdditionRefusal,
  addPushNodes,
  changePushJob,
  type NodeAbortRequest,
  type NodeAddition,
  type PushJobChanges,
  type RecordedJobChange,
  requestAbortOfNodes,
} from './change-store.ts';
import { Coordinator } from './coordinator/coordinator.ts';
import { deleteEndedPushJobs } from './expiry/expiry-store.ts';
import { SurplusJobDeletion } from './expiry/surplus-job-deletion.ts';
import { PushJobFollowers } from './followers/job-followers.ts';
import type { PushJobPage } from './job-page-store.ts';
import { AgentMessenger, type PushSession } from './messenger/agent-messenger.ts';
import {
  PushJobEndedError,
  PushJobKeyConflictError,
  PushJobNotChangeableError,
  PushJobNotEndedError,
  PushJobNotFoundError,
  TooManyPushJobsError,
} from './push-errors.ts';
import {
  type AbortRequest,
  createPushJob,
  deletePushJob,
  listPushJobs,
  listPushNodes,
  MAX_UNFINISHED,
  type NewPushJob,
  type NodePage,
  type NodeStateRow,
  type PushJobFilter,
  type PushJobRow,
  type PushNodeRow,
  type RequestKey,
  readNodeStates,
  readPushJob,
  readPushJobByKey,
  requestAbort,
} from './push-store.ts';
import { PUSH_CHANGES_TOPIC, PUSH_ORDERS_TOPIC } from './push-topics.ts';
import { findServerGroup } from './request/server-groups.ts';
import type { PushJobTicketDeps } from './tickets/job-ticket.ts';

interface PushJobsDeps {
  database: Queryable;
  /** Have the server groups. */
  buckets: Pick<BucketStore, 'page'>;
  bus: Bus;
  clock: Clock;
  random: Random;
  log: Logger;
  config: { slowPollMs: number; slowPollNoBusMs: number };
  session: (serverUuid: string) => PushSession | undefined;
  /** What agents have not read yet. */
  unsent: { readonly isHalfFull: boolean };
  tasks: Pick<Tasks, 'notifyAuthorities'>;
  /** A duty was created. */
  offerDuties: () => void;
  /** Takes, renews and releases the tickets of jobs. */
  waitlist: PushJobTicketDeps['waitlist'];
}

/** How many jobs, and nodes with them, one statement deletes. */
const DELETE_BATCH = { limit: 100, nodes: 10_000 };
/** How many ended jobs of each organization are kept. */
const KEEP_ENDED = 10_000;

const ABORTING = 'is being aborted';
/** How often a change is tried: nodes that are added meanwhile may permit it. */
const MAX_TRIES = 5;

export class PushJobs {
  readonly coordinator: Coordinator;
  readonly messenger: AgentMessenger;
  readonly followers: PushJobFollowers;
  readonly #deps: PushJobsDeps;
  readonly #surplus: SurplusJobDeletion;

  constructor(deps: PushJobsDeps) {
    this.#deps = deps;
    this.#surplus = new SurplusJobDeletion(deps.database, { keep: KEEP_ENDED, ...DELETE_BATCH });
    this.messenger = new AgentMessenger(deps);
    this.followers = new PushJobFollowers(deps);
    this.coordinator = new Coordinator({
      ...deps,
      sendOrders: (jobId) => publishChanges(deps.bus, PUSH_ORDERS_TOPIC, [jobId]),
    });
  }

  start(): void {
    this.messenger.start();
    this.coordinator.start();
    this.followers.start();
  }

  async stop(): Promise<void> {
    this.coordinator.stop();
    await Promise.all([this.messenger.stop(), this.followers.stop()]);
  }

  /**
   * Creates a job. Returns false if its guard was not met, or if another job has its key.
   * @throws TooManyPushJobsError
   */
  async create(job: NewPushJob): Promise<boolean> {
    const { database, bus, offerDuties } = this.#deps;
    const creation = await createPushJob(database, job);
    if (creation === 'full') throw new TooManyPushJobsError(MAX_UNFINISHED);
    if (creation === 'unmet') return false;
    offerDuties();
    publishChanges(bus, PUSH_ORDERS_TOPIC, [job.id]);
    return true;
  }

  /**
   * The job that an earlier request with this key created, if there is one. @throws
   * PushJobKeyConflictError
   */
  async findByIdempotencyKey(repeat: RequestKey | undefined): Promise<string | undefined> {
    const found = repeat && (await readPushJobByKey(this.#deps.database, repeat));
    if (found !== undefined && found.hash !== repeat?.hash)
      throw new PushJobKeyConflictError(found.id, repeat?.key ?? '');
    return found?.id;
  }

  /** @throws PushJobNotFoundError */
  async get(id: string): Promise<PushJobRow> {
    const job = await readPushJob(this.#deps.database, id);
    if (job === undefined) throw new PushJobNotFoundError(id);
    return job;
  }

  /** Lists push jobs, newest first. */
  list(filter: PushJobFilter): Promise<PushJobPage<PushJobRow>> {
    return listPushJobs(this.#deps.database, filter);
  }

  /** Returns the nodes in order of the servers' uuids. @throws PushJobNotFoundError */
  async nodes(id: string, page: NodePage): Promise<PushNodeRow[]> {
    const nodes = await listPushNodes(this.#deps.database, id, page);
    if (nodes.length === 0) await this.get(id);
    return nodes;
  }

  /** The group of servers with this name. */
  serverGroup(name: string): Promise<ServerGroup | undefined> {
    return findServerGroup(this.#deps.buckets, name);
  }

  /** The states of these servers in push jobs, in no order. */
  nodeStates(servers: readonly string[]): Promise<NodeStateRow[]> {
    return readNodeStates(this.#deps.database, servers);
  }

  /** @throws PushJobNotFoundError, PushJobEndedError */
  async abort(id: string, options: AbortRequest): Promise<void> {
    const { database, bus } = this.#deps;
    if (!(await requestAbort(database, id, options))) {
      await this.get(id);
      throw new PushJobEndedError(id);
    }
    publishChanges(bus, PUSH_CHANGES_TOPIC, [id]);
  }

  /**
   * @throws PushJobNotFoundError, PushJobEndedError, PushJobNotChangeableError,
   * InvalidParametersError
   */
  async change(id: string, change: RecordedJobChange): Promise<void> {
    const { database, bus } = this.#deps;
    for (let tries = 0; tries < MAX_TRIES; tries += 1) {
      if (await changePushJob(database, id, change)) return publishChanges(bus, PUSH_CHANGES_TOPIC, [id]);
      const refusal = refusalOfChange(await this.get(id), change.changes);
      if (refusal !== undefined) throw refusal;
    }
    throw new PushJobNotChangeableError(id, 'was changed by others at the same moment');
  }

  /**
   * @throws PushJobNotFoundError, PushJobEndedError, PushJobNotChangeableError,
   * InvalidParametersError
   */
  async addNodes(id: string, { nodes, record }: NodeAddition): Promise<void> {
    const { database, bus } = this.#deps;
    const added = await addPushNodes(database, id, { nodes, limit: MAX_PUSH_NODES, record });
    if (added === undefined) throw new PushJobNotFoundError(id);
    if (added.refusal !== null) throw refusalOfNodes(id, added.refusal, added.present);
    publishChanges(bus, PUSH_CHANGES_TOPIC, [id]);
    publishChanges(bus, PUSH_ORDERS_TOPIC, [id]);
  }

  /**
   * Aborts these nodes; the job goes on. @throws PushJobNotFoundError, PushJobEndedError,
   * InvalidParametersError
   */
  async abortNodes(id: string, options: NodeAbortRequest): Promise<void> {
    const { database, bus } = this.#deps;
    const found = await requestAbortOfNodes(database, id, options);
    if (found === undefined) throw new PushJobNotFoundError(id);
    if (found.missing.length > 0)
      throw invalidParameter('nodes', `these servers are not in the job: ${found.missing.join(', ')}`);
    if (found.state === 'ended') throw new PushJobEndedError(id);
    publishChanges(bus, PUSH_CHANGES_TOPIC, [id]);
  }

  /** @throws PushJobNotFoundError, PushJobNotEndedError */
  async delete(id: string, record: AuditRecordPart | undefined): Promise<void> {
    if (await deletePushJob(this.#deps.database, id, record)) return;
    await this.get(id);
    throw new PushJobNotEndedError(id);
  }

  /** Deletes one batch of old jobs; returns how many. Call it until it returns 0. */
  deleteOlderThan(days: number, records: ExpiryPart): Promise<number> {
    return deleteEndedPushJobs(this.#deps.database, { days, ...DELETE_BATCH, records });
  }

  /** Deletes one batch of the ended jobs of which an organization has too many, like the above. */
  deleteSurplus(records: ExpiryPart): Promise<number> {
    return this.#surplus.batch(records);
  }
}

/**
 * Why the job does not take these changes; undefined: it has changed since, and may take them now.
 */
function refusalOfChange(job: PushJobRow, { quorum }: PushJobChanges): Error | undefined {
  const { id, state, node_count: nodes, abort_requested: abortRequested } = job;
  switch (state) {
    case 'ended':
      return new PushJobEndedError(id);
    case 'aborting':
      return new PushJobNotChangeableError(id, ABORTING);
    case 'waiting':
    case 'voting':
    case 'running':
      if (state === 'running' && quorum !== undefined)
        return new PushJobNotChangeableError(id, 'runs already, so its quorum cannot be changed');
      if (typeof quorum === 'number' && quorum > nodes)
        return invalidParameter('quorum', `value is ${quorum}, and the job has ${nodes} nodes${shareHint(quorum)}`);
      // The abort has not begun.
      return abortRequested === null ? undefined : new PushJobNotChangeableError(id, ABORTING);
    default:
      return state satisfies never;
  }
}

function refusalOfNodes(id: string, refusal: AdditionRefusal, present: readonly string[]): Error {
  switch (refusal) {
    case 'waiting':
      return new PushJobNotChangeableError(
        id,
        'waits for its ticket, so no servers can be added yet; add them when it votes',
      );
    case 'aborting':
      return new PushJobNotChangeableError(id, ABORTING);
    case 'ended':
      return new PushJobEndedError(id);
    case 'late':
      return new PushJobNotChangeableError(id, 'takes no more votes: its voting timeout is over');
    case 'present':
      return invalidParameter('servers', `these servers are in the job already: ${present.join(', ')}`);
    case 'full':
      return invalidParameter('servers', `the job would have more than ${MAX_PUSH_NODES} nodes`);
    default:
      return refusal satisfies never;
  }
}
