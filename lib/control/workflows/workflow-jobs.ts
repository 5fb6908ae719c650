/**
 * Workflow jobs of an instance: what callers ask of them, and the runner behind it. Any instance
 * answers for any job (law 2). Made by `subsystem.ts`.
 */
import type { Bus } from '../../platform/bus/bus.ts';
import { optionalField } from '../../platform/optional-field.ts';
import type { AuditRecordPart } from '../../platform/postgres/sql-text.ts';
import { publishChanges } from '../../platform/waits/changes.ts';
import { SlowPoll } from '../../platform/waits/slow-poll.ts';
import { type UntilOptions, Watches } from '../../platform/waits/watches.ts';
import type { JsonObject } from '../../protocol/json/bounded-json.ts';
import { digestOf } from '../../protocol/json/canonical-json.ts';
import { hasSecrets, maskParams, reasonNotMaskable } from '../../protocol/secret-params.ts';
import { BadSecretParamsError } from '../tasks/store/task-errors.ts';
import { stepNames, taskParams, type WorkflowName } from './definitions.ts';
import {
  ServerHasWorkflowJobError,
  TooManyWorkflowJobsError,
  WorkflowJobEndedError,
  WorkflowJobNotFoundError,
} from './workflow-errors.ts';
import { WorkflowRunner, type WorkflowRunnerDeps } from './workflow-runner.ts';
import {
  countWorkflowJobs,
  createWorkflowJob,
  deleteEndedWorkflowJobs,
  listWorkflowJobs,
  MAX_UNFINISHED_OF_CALLER,
  MAX_UNFINISHED_WORKFLOWS,
  readUnfinishedWorkflowJob,
  readWorkflowJob,
  readWorkflowPositions,
  requestWorkflowCancel,
  type WorkflowJobFilter,
  type WorkflowJobRow,
  type WorkflowPosition,
} from './workflow-store.ts';
import { WORKFLOW_CHANGES_TOPIC, WORKFLOW_ENDS_TOPIC } from './workflow-topics.ts';

export interface WorkflowJobsDeps extends WorkflowRunnerDeps {
  bus: Bus;
  config: { slowPollMs: number; slowPollNoBusMs: number };
  /** A duty was created. */
  offerDuties: () => void;
}

interface WorkflowRequest {
  name: WorkflowName;
  serverUuid: string;
  params: JsonObject;
  requestId: string | undefined;
  actor: string | undefined;
  record?: AuditRecordPart | undefined;
}

const DELETE_BATCH = 500;
/** How often a creation is tried: the server's unfinished job may end meanwhile. */
const MAX_TRIES = 5;

export class WorkflowJobs {
  readonly runner: WorkflowRunner;
  readonly #deps: WorkflowJobsDeps;
  readonly #watches: Watches<WorkflowPosition>;
  readonly #slowPoll: SlowPoll;

  constructor(deps: WorkflowJobsDeps) {
    this.#deps = deps;
    this.runner = new WorkflowRunner(deps);
    this.#watches = new Watches<WorkflowPosition>({
      ...deps,
      what: 'workflow job',
      topic: WORKFLOW_ENDS_TOPIC,
      read: async (connection, ids) =>
        (await readWorkflowPositions(connection, ids)).map((position) => [position.id, position]),
      isBefore: (next, last) => !next.isEnded && next.ends < last.ends,
    });
    this.#slowPoll = new SlowPoll({ ...deps, what: 'workflow jobs', work: async () => this.#watches.poll() });
  }

  start(): void {
    this.runner.start();
    this.#slowPoll.start();
  }

  async stop(): Promise<void> {
    await Promise.all([this.runner.stop(), this.#watches.stop(), this.#slowPoll.stop()]);
  }

  /**
   * Creates a job; returns its id. While an equal job of the server is unfinished, returns the id
   * of that one.
   * @throws ServerHasWorkflowJobError, TooManyWorkflowJobsError, BadSecretParamsError
   */
  async create({ name, serverUuid, params, requestId, actor, record }: WorkflowRequest, id: string): Promise<string> {
    const { secret_params } = params;
    const reason = reasonNotMaskable({ ...taskParams(name, params), ...optionalField('secret_params', secret_params) });
    if (reason !== undefined) throw new BadSecretParamsError(reason);
    const shown = maskParams(params);
    // The hash covers the masked parameters, as for tasks.
    const requestHash = digestOf([name, serverUuid, shown]);
    const job = {
      ...{ id, name, serverUuid, params, requestHash, requestId, actor, record, ...stepNames(name, params) },
      maskedParams: hasSecrets(params) ? shown : undefined,
    };
    for (let tries = 0; tries < MAX_TRIES; tries += 1) {
      const creation = await createWorkflowJob(this.#deps.database, job);
      if (creation === 'full') throw new TooManyWorkflowJobsError(MAX_UNFINISHED_WORKFLOWS);
      if (creation === 'caller-full') throw new TooManyWorkflowJobsError(MAX_UNFINISHED_OF_CALLER, ' of one caller');
      if (creation === 'created') {
        this.#deps.offerDuties();
        return id;
      }
      const unfinished = await readUnfinishedWorkflowJob(this.#deps.database, serverUuid);
      if (unfinished === undefined) continue;
      // A repeat of a request with secrets cannot be told from one with other secrets.
      if (unfinished.request_hash === requestHash && !hasSecrets(params) && unfinished.cancel_requested_at === null)
        return unfinished.id;
      throw new ServerHasWorkflowJobError(serverUuid, unfinished);
    }
    throw new TooManyWorkflowJobsError(MAX_UNFINISHED_WORKFLOWS);
  }

  /** @throws WorkflowJobNotFoundError */
  async get(id: string): Promise<WorkflowJobRow> {
    const job = await readWorkflowJob(this.#deps.database, id);
    if (job === undefined) throw new WorkflowJobNotFoundError(id);
    return job;
  }

  /** The newest first. */
  list(filter: WorkflowJobFilter, size: { rows: number; bytes: number }): Promise<WorkflowJobRow[]> {
    return listWorkflowJobs(this.#deps.database, filter, size);
  }

  /**
   * Returns the job when it has ended, when more than `seen` ends of steps are recorded, or at the
   * timeout.
   * @throws WorkflowJobNotFoundError, TooManyWaitersError, WaitStoppedError, the signal's reason
   */
  async wait(id: string, { seen, ...options }: UntilOptions & { seen: number | undefined }): Promise<WorkflowJobRow> {
    const watch = this.#watches.open(id, false);
    try {
      await watch.until(
        (position) => position === undefined || position.isEnded || (seen !== undefined && position.ends > seen),
        options,
      );
    } finally {
      watch.close();
    }
    return this.get(id);
  }

  /**
   * Requests the end. A step that waits ends immediately, a task when its agent reports its end.
   * @throws WorkflowJobNotFoundError, WorkflowJobEndedError
   */
  async cancel(
    id: string,
    request: { actor: string | undefined; record?: AuditRecordPart | undefined },
  ): Promise<void> {
    const { database, bus } = this.#deps;
    if (await requestWorkflowCancel(database, id, request)) return publishChanges(bus, WORKFLOW_CHANGES_TOPIC, [id]);
    throw new WorkflowJobEndedError(id, (await this.get(id)).execution);
  }

  /** Deletes one batch of old jobs; returns how many. Call it until it returns 0. */
  deleteOlderThan(days: number): Promise<number> {
    return deleteEndedWorkflowJobs(this.#deps.database, days, DELETE_BATCH);
  }

  counts(): Promise<Record<string, number>> {
    return countWorkflowJobs(this.#deps.database);
  }
}
