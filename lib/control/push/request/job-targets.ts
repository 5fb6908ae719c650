/**
 * The servers that a new job is for: by uuid, by conditions on servers, those of a group, or of an
 * earlier job.
 * Called by `job-request.ts`, for each job anew.
 */
import { invalidParameter } from '../../../platform/errors.ts';
import type { ServerGroup } from '../../../protocol/api/documents/server-groups.ts';
import type { NodeStatus } from '../../../protocol/api/push/job-schemas.ts';
import { MAX_PUSH_NODES } from '../../../protocol/limits.ts';
import { parseWhere, type WhereCondition } from '../../../protocol/where.ts';
import type { NewNode, PushNodeRow } from '../push-store.ts';

/** The servers that a request can name. */
export interface KnownServers {
  /** The hostnames, by uuid, of the given servers that exist. */
  hostnames(serverUuids: readonly string[]): Promise<ReadonlyMap<string, string>>;
  /** The servers that meet all conditions; `unknown` names a property that no server has. */
  select(
    conditions: readonly WhereCondition[],
    limit: number,
  ): Promise<{ servers: readonly { serverUuid: string; hostname: string }[]; unknown: string | undefined }>;
}

/** Server groups and earlier jobs, which a request can name instead of servers. */
export interface KnownJobs {
  /** Returns the nodes in order of the servers' uuids. @throws PushJobNotFoundError */
  nodes(
    id: string,
    page: { state: PushNodeRow['state'] | undefined; after: string | undefined; limit: number },
  ): Promise<readonly Pick<PushNodeRow, 'server_uuid'>[]>;
  serverGroup(name: string): Promise<Pick<ServerGroup, 'servers' | 'where'> | undefined>;
}

interface TargetRequest {
  servers?: readonly string[] | undefined;
  where?: readonly string[] | undefined;
  group?: string | undefined;
  from_job?: string | undefined;
  from_status?: NodeStatus | undefined;
}

const PAGE = 1_000;

/**
 * The contract of the request has been checked, so it has one kind of target. @throws
 * InvalidParametersError when there are no such servers
 */
export async function resolveTargets(
  request: TargetRequest,
  { servers, jobs }: { servers: KnownServers; jobs: KnownJobs },
): Promise<NewNode[]> {
  const { servers: uuids, where, group, from_job: jobId, from_status: status } = request;
  if (uuids !== undefined) return resolveNodes(uuids, servers);
  if (where !== undefined) return selected('where', where, servers);
  if (group !== undefined) return serversOfGroup(group, servers, jobs);
  if (jobId !== undefined) return resolveNodes(await readServers(jobId, status, jobs), servers, 'from_job');
  throw new Error('a push job without targets was not refused');
}

/** @throws InvalidParametersError for servers that do not exist */
export async function resolveNodes(
  uuids: readonly string[],
  servers: Pick<KnownServers, 'hostnames'>,
  field = 'servers',
): Promise<NewNode[]> {
  const names = await servers.hostnames(uuids);
  const unknown = uuids.filter((uuid) => !names.has(uuid));
  if (unknown.length === 0) return uuids.map((serverUuid) => ({ serverUuid, name: names.get(serverUuid) ?? '' }));
  const more = unknown.length > 10 ? ` and ${unknown.length - 10} more` : '';
  throw invalidParameter(field, `there are no such servers: ${unknown.slice(0, 10).join(', ')}${more}`);
}

/** @throws InvalidParametersError */
async function serversOfGroup(name: string, known: KnownServers, jobs: KnownJobs): Promise<NewNode[]> {
  const group = await jobs.serverGroup(name);
  if (group === undefined) throw invalidParameter('group', `there is no server group ${JSON.stringify(name)}`);
  const { servers = [], where } = group;
  if (where !== undefined) return selected('group', where, known);
  if (servers.length > 0) return resolveNodes(servers, known, 'group');
  throw invalidParameter('group', `server group ${name} has no servers`);
}

/** @throws InvalidParametersError */
async function selected(field: string, where: readonly string[], servers: KnownServers): Promise<NewNode[]> {
  const conditions = where.map((text) => {
    const condition = parseWhere(text);
    if (condition !== undefined) return condition;
    throw invalidParameter(field, `${JSON.stringify(text)} is not NAME=PATTERN, such as hostname=web-*`);
  });
  const { servers: found, unknown } = await servers.select(conditions, MAX_PUSH_NODES + 1);
  if (unknown !== undefined) throw invalidParameter(field, `no server has a property ${unknown}`);
  if (found.length === 0) throw invalidParameter(field, 'no server matches');
  if (found.length > MAX_PUSH_NODES)
    throw invalidParameter(
      field,
      `more than ${MAX_PUSH_NODES} servers match; a job can have at most ${MAX_PUSH_NODES}`,
    );
  return found.map(({ serverUuid, hostname }) => ({ serverUuid, name: hostname }));
}

/** @throws InvalidParametersError when no node has the status, PushJobNotFoundError */
async function readServers(jobId: string, state: TargetRequest['from_status'], jobs: KnownJobs): Promise<string[]> {
  const found: string[] = [];
  for (;;) {
    const page = await jobs.nodes(jobId, { state, after: found.at(-1), limit: PAGE });
    found.push(...page.map(({ server_uuid }) => server_uuid));
    if (page.length < PAGE) break;
  }
  if (found.length > 0) return found;
  throw state === undefined
    ? invalidParameter('from_job', `push job ${jobId} has no nodes`)
    : invalidParameter('from_status', `no node of push job ${jobId} is ${state}`);
}
