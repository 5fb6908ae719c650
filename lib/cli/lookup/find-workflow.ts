/** Workflow jobs, as callers name and list them. */
import type { CnapiClient } from '../../client/client.ts';
import { ApiError } from '../../client/client-errors.ts';
import { fullPages } from '../../client/pages.ts';
import { isUuid } from '../../protocol/api/contract/rules.ts';
import { type WorkflowJob, workflowContracts } from '../../protocol/api/workflows.ts';
import { UsageError } from '../terminal/command-errors.ts';
import { checkPrefix, uniqueMatch } from './find.ts';

export const MAX_WORKFLOWS = 10_000;

/** Finds a workflow job by its uuid, or by the beginning of its uuid. @throws UsageError */
export async function findWorkflow(client: CnapiClient, text: string): Promise<string> {
  if (isUuid(text)) return text.toLowerCase();
  checkPrefix('a workflow job', text);
  const jobs = await client.ask(workflowContracts.ListWorkflowJobs, { id_prefix: text.toLowerCase(), limit: 5 });
  return uniqueMatch(
    'workflow job',
    text,
    jobs.map(({ uuid }) => uuid),
  );
}

/**
 * Explains a 404 about a job whose whole uuid was given, because `findWorkflow` does not look such
 * a job up.
 */
export function explainNoWorkflow(error: unknown, id: string): never {
  if (error instanceof ApiError && error.code === 'ResourceNotFound')
    throw new UsageError(`There is no workflow job ${id}; cnapi workflow list lists them`);
  throw error;
}

interface WorkflowFilter {
  execution?: WorkflowJob['execution'] | undefined;
  name?: string | undefined;
  server_uuid?: string | undefined;
}

/** The newest jobs, at most `count`. `isMore`: there are others. */
export async function newestWorkflows(
  client: CnapiClient,
  filter: WorkflowFilter,
  count: number,
): Promise<{ jobs: WorkflowJob[]; isMore: boolean }> {
  const jobs: WorkflowJob[] = [];
  const all = fullPages(
    // One more than wanted tells whether there are more.
    ({ after, limit }) =>
      client.ask(workflowContracts.ListWorkflowJobs, { ...filter, after, limit: Math.min(limit, count + 1) }),
    ({ uuid }) => uuid,
  );
  for await (const job of all) {
    if (jobs.length === count) return { jobs, isMore: true };
    jobs.push(job);
  }
  return { jobs, isMore: false };
}
