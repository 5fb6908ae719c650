/**
 * Workflow jobs of an instance: what callers ask of them, and the runner behind it. Any instance
 * answers for any job (law 2). Made by `subsystem.ts`.
 */
import type { Bus } from '../../platform/bus/bus.ts';
import { definedFields } from '../../platform/defined-fields.ts';
import { publishChanges } from '../../platform/waits/changes.ts';
import { SlowPoll } from '../../platform/waits/slow-poll.ts';
import { type UntilOptions, Watches } from '../../platform/waits/watches.ts';
import type { JsonObject } from '../../protocol/json/bounded-json.ts';
import { digestOf } from '../../protocol/json/canonical-json.ts';
import { hasSecrets, maskParams, reasonNotMaskable } from '../../protocol/secret-params.ts';
import type { AuditRecordPart } from '../audit-part.ts';
import { BadSecretParamsError } from '../tasks/store/task-errors.ts';
import type { VmDocument } from '../vms/vm.ts';
import { VmExistsError } from '../vms/vm-registry.ts';
import { stepNames, taskParams, type WorkflowName } from './definitions.ts';
import { answerForVm } from './repeated-request.ts';
import {
  ServerHasWorkflowJobError,
  TooManyWorkflowJobsError,
  VmHasWorkflowJobError,
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
  readWorkflowJobOfVm,
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
  /** The VM that the job creates. */
  vmUuid?: string | undefined;
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
      isBefore: (next, last) => !next.isEnded && next.ends + next.begins < last.ends + last.begins,
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
   * @throws ServerHasWorkflowJobError, VmHasWorkflowJobError, TooManyWorkflowJobsError,
   * BadSecretParamsError; CnapiError when the room for its VM is not held any more
   */
  async create(request: WorkflowRequest, id: string): Promise<string> {
    const { name, serverUuid, vmUuid, params, requestId, actor, record } = request;
    const requestHash = requestHashOf(request);
    const shown = maskParams(params);
    const job = {
      ...{ id, name, serverUuid, vmUuid, params, requestHash, requestId, actor, record, ...stepNames(name, params) },
      maskedParams: hasSecrets(params) ? shown : undefined,
    };
    for (let tries = 0; tries < MAX_TRIES; tries += 1) {
      const creation = await createWorkflowJob(this.#deps.database, job);
      if (creation === 'created') {
        this.#deps.offerDuties();
        return id;
      }
      // Also where there is no room for another one: the request may be a repeat.
      const unfinished = await this.#unfinishedOf(request, requestHash);
      if (unfinished !== undefined) return unfinished;
      if (creation === 'full') throw new TooManyWorkflowJobsError(MAX_UNFINISHED_WORKFLOWS);
      if (creation === 'caller-full') throw new TooManyWorkflowJobsError(MAX_UNFINISHED_OF_CALLER, ' of one caller');
    }
    throw new TooManyWorkflowJobsError(MAX_UNFINISHED_WORKFLOWS);
  }

  /**
   * The unfinished job of an equal request. @throws ServerHasWorkflowJobError,
   * VmHasWorkflowJobError
   */
  async #unfinishedOf({ serverUuid, vmUuid, params }: WorkflowRequest, requestHash: string) {
    const { database } = this.#deps;
    if (vmUuid !== undefined) {
      const last = await readWorkflowJobOfVm(database, vmUuid);
      const answer = answerForVm(last, { requestHash, vmExists: false });
      if (last !== undefined && answer === 'busy') throw new VmHasWorkflowJobError(vmUuid, last);
      return answer === 'same' ? last?.id : undefined;
    }
    const unfinished = await readUnfinishedWorkflowJob(database, serverUuid);
    // A repeat of a request with secrets cannot be told from one with other secrets.
    const isEqual = unfinished?.request_hash === requestHash && !hasSecrets(params);
    if (unfinished === undefined || (isEqual && unfinished.cancel_requested_at === null)) return unfinished?.id;
    throw new ServerHasWorkflowJobError(serverUuid, unfinished);
  }

  /**
   * The job that an equal request for this VM has created. Undefined: there is none, and no such
   * VM.
   * @throws VmHasWorkflowJobError, VmExistsError, BadSecretParamsError
   */
  async findForVm(
    request: Pick<WorkflowRequest, 'name' | 'params'> & { vmUuid: string },
    vm: VmDocument | undefined,
  ): Promise<string | undefined> {
    const last = await readWorkflowJobOfVm(this.#deps.database, request.vmUuid);
    const answer = answerForVm(last, { requestHash: requestHashOf(request), vmExists: vm !== undefined });
    if (last !== undefined && answer === 'busy') throw new VmHasWorkflowJobError(request.vmUuid, last);
    if (vm !== undefined && answer === 'exists') throw new VmExistsError(request.vmUuid, vm);
    return answer === 'same' ? last?.id : undefined;
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
   * Returns the job when it has ended, when more than `seen` ends of steps or `begun` beginnings of
   * steps are recorded, or at the timeout.
   * @throws WorkflowJobNotFoundError, TooManyWaitersError, WaitStoppedError, the signal's reason
   */
  async wait(
    id: string,
    {
      seen = Infinity,
      begun = Infinity,
      ...options
    }: UntilOptions & { seen?: number | undefined; begun?: number | undefined },
  ): Promise<WorkflowJobRow> {
    const watch = this.#watches.open(id, false);
    try {
      await watch.until(
        (position) => position === undefined || position.isEnded || position.ends > seen || position.begins > begun,
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

/**
 * Hashes the masked parameters, as those of a task. The server of a VM is chosen, not requested.
 * @throws BadSecretParamsError
 */
function requestHashOf({
  name,
  serverUuid,
  vmUuid,
  params,
}: Pick<WorkflowRequest, 'name' | 'vmUuid' | 'params'> & { serverUuid?: string }): string {
  const { secret_params } = params;
  const reason = reasonNotMaskable({ ...taskParams(name, params), ...definedFields({ secret_params }) });
  if (reason !== undefined) throw new BadSecretParamsError(reason);
  return digestOf([name, vmUuid ?? serverUuid ?? '', maskParams(params)]);
}
