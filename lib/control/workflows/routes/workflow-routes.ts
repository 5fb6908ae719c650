/** Answers the routes of workflow jobs (lib/protocol/api/workflows.ts). */
import { z } from 'zod';
import { CnapiError } from '../../../platform/errors.ts';
import { MAX_WAIT_SECONDS } from '../../../protocol/api/contract/rules.ts';
import { WORKFLOW_PAGE, workflowContracts } from '../../../protocol/api/workflows.ts';
import { answerRows, ROW_STREAM_BYTES } from '../../http/answer/row-stream.ts';
import { accepted, bind, empty, ok, type RequestContext, type Route, recordedInCommit } from '../../http/route.ts';
import { InstanceDrainingError } from '../../request-errors.ts';
import { ageOfCnAgent } from '../../servers/cn-agent-version.ts';
import { CORE_PARTS } from '../../servers/server-store.ts';
import type { Servers } from '../../servers/servers.ts';
import { runTask, TaskRunError } from '../../tasks/requests/run-task.ts';
import { TaskUnknownError } from '../../tasks/store/task-errors.ts';
import type { Tasks } from '../../tasks/tasks.ts';
import { ENDS_OF_A_REBOOT } from '../definitions.ts';
import { checkWorkAllowed } from '../work-not-allowed.ts';
import type { WorkflowJobs } from '../workflow-jobs.ts';
import {
  type CreateWorkflowJobDeps,
  createRequestedWorkflowJob,
  type WorkflowJobContext,
} from './create-workflow-job.ts';
import { showsContents, toWorkflowJob } from './workflow-view.ts';

interface WorkflowRouteDeps extends CreateWorkflowJobDeps {
  workflowJobs: Pick<WorkflowJobs, 'create' | 'get' | 'list' | 'wait' | 'cancel'>;
  tasks: Pick<Tasks, 'create' | 'wait'>;
  servers: Pick<Servers, 'get'>;
  /** Aborts when this instance leaves and every wait must be answered. */
  instanceLeaving: AbortSignal;
}

/** 503, as in Triton's CNAPI. */
class RebootWithoutJobError extends CnapiError {
  constructor(serverUuid: string) {
    super('ServiceUnavailable', 503, `The agent of server ${serverUuid} is too old to reboot it without a job`);
  }
}

export function workflowRoutes(deps: WorkflowRouteDeps): Route[] {
  const { workflowJobs, instanceLeaving: endSignal } = deps;
  async function cancel({ params: { uuid }, actor, withAuditRecord }: RequestContext<{ uuid: string }>) {
    await withAuditRecord((record) => workflowJobs.cancel(uuid, { actor: actor.name, record }), uuid);
    return ok(toWorkflowJob(await workflowJobs.get(uuid), actor));
  }
  return bind(
    workflowContracts,
    {
      async ListWorkflowJobs({ params, actor }) {
        const { execution, name, server_uuid: serverUuid, id_prefix: idPrefix, after: first } = params;
        const { limit = WORKFLOW_PAGE, offset } = params;
        return answerRows<unknown, string>({
          limit,
          async read(last, size) {
            const filter = {
              execution,
              name,
              serverUuid,
              idPrefix,
              after: last ?? first,
              offset: last === undefined ? offset : 0,
              withParams: showsContents(actor),
            };
            const jobs = await workflowJobs.list(filter, size);
            return { rows: jobs.map((job) => toWorkflowJob(job, actor)), next: jobs.at(-1)?.id };
          },
        });
      },
      GetWorkflowJob: async ({ params, actor }) => ok(toWorkflowJob(await workflowJobs.get(params.uuid), actor)),
      async WaitWorkflowJob({ params: { uuid, timeout, seen, begun }, actor, signal }) {
        const timeoutMs = (timeout ?? MAX_WAIT_SECONDS) * 1000;
        const job = await workflowJobs.wait(uuid, { seen, begun, timeoutMs, signal, endSignal });
        if (job.ended_at === null && endSignal.aborted) throw new InstanceDrainingError();
        return ok(toWorkflowJob(job, actor));
      },
      CancelWorkflowJob: recordedInCommit(cancel),
      PutWorkflowCancel: recordedInCommit(cancel),
      RebootServer: recordedInCommit(async (context) => {
        const { server_uuid: uuid } = context.params;
        const found = await deps.servers.get(uuid, { ...CORE_PARTS, agents: true, sysinfo: true });
        checkWorkAllowed(uuid, found?.server.sysinfo, 'reboot');
        if (context.params.nojob !== true)
          return accepted({ job_uuid: await createRequestedWorkflowJob(deps, context, 'server-reboot') });
        await rebootWithoutJob(deps, context, found?.server.agents);
        return empty(204);
      }),
    },
    { ListWorkflowJobs: { answerBytes: ROW_STREAM_BYTES } },
  );
}

/** Agents of Triton before 2.11.0 do not know the task, as in Triton's CNAPI. */
async function rebootWithoutJob(
  deps: WorkflowRouteDeps,
  context: WorkflowJobContext,
  agents: Parameters<typeof ageOfCnAgent>[0] = [],
): Promise<void> {
  const { server_uuid: serverUuid } = context.params;
  if (ageOfCnAgent(agents, '2.11.0') !== 'new enough') throw new RebootWithoutJobError(serverUuid);
  try {
    await runTask(deps, context, { name: 'server_reboot', params: {}, result: z.unknown() });
  } catch (error) {
    if (error instanceof TaskUnknownError) throw new RebootWithoutJobError(serverUuid);
    if (!(error instanceof TaskRunError) || !ENDS_OF_A_REBOOT.includes(error.taskCode ?? '')) throw error;
  }
}
