/** A push job and its nodes, as callers name them. */
import { type PushNode, pushJobContracts } from '../../protocol/api/push-jobs.ts';
import { isUuid } from '../../protocol/api/rules.ts';
import type { Context } from '../invocation/context.ts';
import { checkPrefix, onlyOne } from '../lookup/find.ts';

/** As many as one request returns. */
export const MAX_JOBS = 1_000;
const NODES_A_PAGE = 1_000;

/** By its id or the beginning of it. @throws UsageError */
export async function findJob({ client }: Context, text: string): Promise<string> {
  if (isUuid(text)) return text;
  checkPrefix('a push job', text);
  const jobs = await client.ask(pushJobContracts.ListPushJobs, { limit: MAX_JOBS });
  const ids = jobs.map(({ id }) => id).filter((id) => id.startsWith(text.toLowerCase()));
  return onlyOne('push job', text, ids);
}

export async function nodesOf({ client }: Context, id: string, status?: PushNode['status']): Promise<PushNode[]> {
  const nodes: PushNode[] = [];
  for (let after: string | undefined; ; ) {
    const page = await client.ask(pushJobContracts.ListPushNodes, { id, status, after, limit: NODES_A_PAGE });
    nodes.push(...page);
    if (page.length < NODES_A_PAGE) return nodes;
    after = page.at(-1)?.server_uuid;
  }
}
