/** Creates a workflow job for a request, in the commit of the audit's record of that request. */
import { withoutUndefined } from '../../../platform/defined-fields.ts';
import type { Random } from '../../../platform/random.ts';
import type { RequestContext } from '../../http/route.ts';
import type { WorkflowName } from '../definitions.ts';
import type { WorkflowJobs } from '../workflow-jobs.ts';

export interface CreateWorkflowJobDeps {
  workflowJobs: Pick<WorkflowJobs, 'create'>;
  random: Random;
}

export type WorkflowJobContext = RequestContext<{ server_uuid: string }>;

/** Returns the id of the job. @throws the errors of `WorkflowJobs.create` */
export function createRequestedWorkflowJob(
  { workflowJobs, random }: CreateWorkflowJobDeps,
  { params, requestId, actor, withAuditRecord }: WorkflowJobContext,
  name: WorkflowName,
): Promise<string> {
  const id = random.uuid();
  const request = {
    name,
    serverUuid: params.server_uuid,
    params: withoutUndefined(params),
    requestId,
    actor: actor.name,
  };
  return withAuditRecord((record) => workflowJobs.create({ ...request, record }, id), id);
}
