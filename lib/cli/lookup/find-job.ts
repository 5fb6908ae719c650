/** A push job and its nodes, as callers name them. */

import { isUuid } from '../../protocol/api/contract/rules.ts';
import type { PushJob, PushNode } from '../../protocol/api/push/job-schemas.ts';
import { pushJobContracts } from '../../protocol/api/push/jobs.ts';
import type { Context } from '../invocation/context.ts';
import { UsageError } from '../terminal/command-errors.ts';
import { escapeControls } from '../terminal/escape-controls.ts';
import { checkPrefix, findServer, uniqueMatch } from './find.ts';

/** The most jobs that one request returns. */
const JOBS_A_PAGE = 1_000;
const NODES_A_PAGE = 1_000;

/** Finds a push job by its id, or by the beginning of its id. @throws UsageError */
export async function findJob({ client }: Pick<Context, 'client'>, text: string): Promise<string> {
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
export async function newestJobs(
  { client }: Pick<Context, 'client'>,
  { count, status, schedule, matches }: PushJobSearch,
): Promise<PushJob[]> {
  const jobs: PushJob[] = [];
  for (let after: string | undefined; ; ) {
    const limit = matches === undefined ? Math.min(JOBS_A_PAGE, count - jobs.length) : JOBS_A_PAGE;
    const page = await client.ask(pushJobContracts.ListPushJobs, { status, schedule, after, limit });
    jobs.push(...page.jobs.filter((job) => matches?.(job) ?? true));
    after = page.next;
    if (after === undefined || jobs.length >= count) return jobs.slice(0, count);
  }
}

export async function nodesOf(
  { client }: Pick<Context, 'client'>,
  id: string,
  status?: PushNode['status'],
): Promise<PushNode[]> {
  const nodes: PushNode[] = [];
  for (let after: string | undefined; ; ) {
    const page = await client.ask(pushJobContracts.ListPushNodes, { id, status, after, limit: NODES_A_PAGE });
    nodes.push(...page);
    if (page.length < NODES_A_PAGE) return nodes;
    after = page.at(-1)?.server_uuid;
  }
}

/** The node that a server is in a push job. @throws UsageError when it is not one */
export async function findNode(context: Pick<Context, 'client'>, job: string, name: string): Promise<PushNode> {
  const { uuid } = await findServer(context.client, name);
  const node = (await nodesOf(context, job)).find(({ server_uuid }) => server_uuid === uuid);
  if (node === undefined) throw new UsageError(`${escapeControls(name)} is not a node of push job ${job}`);
  return node;
}
