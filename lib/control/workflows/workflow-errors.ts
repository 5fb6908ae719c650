/** Errors of workflow jobs that a caller can act on. */
import { CnapiError } from '../../platform/errors.ts';

export class WorkflowJobNotFoundError extends CnapiError {
  constructor(id: string) {
    super('ResourceNotFound', 404, `There is no workflow job ${id}`);
  }
}

/** 409, as in Triton's workflow API. */
export class WorkflowJobEndedError extends CnapiError {
  constructor(id: string, execution: string) {
    const end = execution === 'canceled' ? 'was cancelled' : `has ${execution}`;
    super('WorkflowJobEnded', 409, `Workflow job ${id} ${end}; only a job that has not ended can be cancelled`);
  }
}

/** A server has one unfinished job at a time. */
export class ServerHasWorkflowJobError extends CnapiError {
  constructor(serverUuid: string, { id, name }: { id: string; name: string }) {
    super('ServerHasWorkflowJob', 409, `Server ${serverUuid} has workflow job ${id} (${name}), which has not ended`);
  }
}

/** A VM is created by one job at a time. */
export class VmHasWorkflowJobError extends CnapiError {
  constructor(vmUuid: string, { id }: { id: string }) {
    const advice = `wait for it at /jobs/${id}/wait, or cancel it`;
    super(
      'VmHasWorkflowJob',
      409,
      `Workflow job ${id} creates VM ${vmUuid} for another request and has not ended; ${advice}`,
    );
  }
}

export class TooManyWorkflowJobsError extends CnapiError {
  /** `whose`: in words, if the bound is not that of all callers. */
  constructor(limit: number, whose = '') {
    const message = `Nothing was created: at most ${limit} workflow jobs${whose} may be unfinished; try again when some have ended`;
    super('TooManyWorkflowJobs', 503, message, { retryAfterSeconds: 5 });
  }
}
