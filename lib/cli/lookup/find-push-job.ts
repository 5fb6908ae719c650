/** A push job and its nodes, as callers name them. */
import { fullPages, pages } from '../../client/pages.ts';
import { isUuid } from '../../protocol/api/contract/rules.ts';
import type { PushJob, PushNode } from '../../protocol/api/push/job-schemas.ts';
import { pushJobContracts } from '../../protocol/api/push/jobs.ts';
import type { Context } from '../invocation/context.ts';
import { UsageError } from '../terminal/command-errors.ts';
import { escapeControls } from '../terminal/escape-controls.ts';
import { checkPrefix, findServer, uniqueMatch } from './find.ts';

/** Finds a push job by its id, or by the beginning of its id. @throws UsageError */
export async function findPushJob({ client }: Pick<Context, 'client'>, text: string): Promise<string> {
  if (isUuid(text)) return text;
  checkPrefix('a push job', text);
  const { jobs } = await client.ask(pushJobContracts.ListPushJobs, { id_prefix: text.toLowerCase(), limit: 5 });
  const ids = jobs.map(({ id }) => id);
  return uniqueMatch('push job', text, ids);
}

interface PushJobSearch {
  /** How many jobs to return at most. */
  count: number;
  status?: PushJob['status'] | undefined;
  /** The id of the schedule that started it. */
  schedule?: string | undefined;
  matches?: (job: PushJob) => boolean;
}

/**
 * The newest jobs that match, from as many pages as needed, because a page of large jobs is short.
 */
export async function newestPushJobs(
  { client }: Pick<Context, 'client'>,
  { count, status, schedule, matches }: PushJobSearch,
): Promise<PushJob[]> {
  const jobPages = pages(
    async (page) => {
      const { jobs, next } = await client.ask(pushJobContracts.ListPushJobs, { status, schedule, ...page });
      return { items: jobs, next };
    },
    matches === undefined ? count : undefined,
  );
  const jobs: PushJob[] = [];
  for await (const job of jobPages) {
    if (matches?.(job) ?? true) jobs.push(job);
    if (jobs.length === count) break;
  }
  return jobs;
}

export function readJobNodes(
  { client }: Pick<Context, 'client'>,
  id: string,
  status?: PushNode['status'],
): Promise<PushNode[]> {
  const nodes = fullPages(
    (page) => client.ask(pushJobContracts.ListPushNodes, { id, status, ...page }),
    ({ server_uuid }) => server_uuid,
  );
  return Array.fromAsync(nodes);
}

/** The node that a server is in a push job. @throws UsageError when it is not one */
export async function findNode(context: Pick<Context, 'client'>, jobId: string, name: string): Promise<PushNode> {
  const { uuid } = await findServer(context.client, name);
  const node = (await readJobNodes(context, jobId)).find(({ server_uuid }) => server_uuid === uuid);
  if (node === undefined) throw new UsageError(`${escapeControls(name)} is not a node of push job ${jobId}`);
  return node;
}
