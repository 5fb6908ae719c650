/**
 * On which servers a command is to run: by name, by a property, all, those of a server group or of
 * an earlier push job. Names become uuids here; the rest is left to the API, which looks up the
 * servers when it creates the job. `readServers` looks them up for what needs them before: `cnapi
 * exec`, `--dry-run`, a share of the servers.
 */

import { type ServerGroup, serverGroups } from '../../protocol/api/documents/server-groups.ts';
import type { NodeStatus } from '../../protocol/api/push/job-schemas.ts';
import type { NamedServer } from '../../protocol/api/servers.ts';
import type { Context } from '../invocation/context.ts';
import { UsageError } from '../terminal/command-errors.ts';
import { escapeControls } from '../terminal/escape-controls.ts';
import { sortByName } from '../terminal/name-order.ts';
import type { Output } from '../terminal/output.ts';
import { findServers, findServersWhere } from './find.ts';
import { findDocument } from './find-document.ts';
import { findPushJob, readJobNodes } from './find-push-job.ts';
import { parseWhereOption } from './where.ts';

export interface TargetOptions {
  all?: boolean;
  where?: string[];
  /** The name of a server group. */
  group?: string;
  fromJob?: string;
  /** Selects nodes of the job `fromJob` by their status. */
  status?: NodeStatus;
}

/** The servers that the user named; except for `servers`, in the form of POST /push-jobs. */
export type Targets =
  | { servers: readonly NamedServer[] }
  | { where: string[] }
  | { group: string }
  | { from_job: string; from_status?: NodeStatus };

type Finder = Pick<Context, 'client'>;

/** @throws UsageError when servers are named in none of these ways, or in several */
export async function findTargets(
  context: Finder,
  words: readonly string[],
  { all = false, where = [], group, fromJob, status }: TargetOptions,
): Promise<Targets> {
  if (words.includes('')) throw new UsageError('The name of a server is empty: is a variable not set?');
  const conditions = [...where, ...words.filter((word) => word.includes('='))];
  const names = words.filter((word) => !word.includes('='));
  const ways = [
    names.length > 0 && 'servers by name',
    conditions.length > 0 && 'servers by NAME=PATTERN',
    all && '--all',
    group !== undefined && '--group',
    fromJob !== undefined && '--from-job',
  ].filter((way) => way !== false);
  if (status !== undefined && fromJob === undefined) throw new UsageError('--status needs --from-job');
  if (ways.length === 0)
    throw new UsageError(
      'On which servers? Name some, or give NAME=PATTERN as with --where of cnapi servers, or --all',
    );
  if (ways.length > 1) throw new UsageError(`${sentence(ways.join(' and '))} cannot be combined`);
  for (const condition of conditions) parseWhereOption(condition);
  if (group !== undefined)
    return { group: (await findDocument<ServerGroup>(context.client, serverGroups, group)).name };
  if (fromJob !== undefined) {
    const from_status = status === undefined ? {} : { from_status: status };
    return { from_job: await findPushJob(context, fromJob), ...from_status };
  }
  if (names.length > 0) return { servers: await findServers(context.client, names) };
  return { where: all ? ['uuid=*'] : conditions };
}

/** The members of POST /push-jobs that name the servers. */
export const targetFieldsOf = (targets: Targets) =>
  'servers' in targets ? { servers: targets.servers.map(({ uuid }) => uuid) } : targets;

/** The servers that the targets name at this moment. @throws UsageError when there are none */
export async function readServers(context: Finder, targets: Targets): Promise<readonly NamedServer[]> {
  const servers = await foundNow(context, targets);
  if (servers.length > 0) return servers;
  throw new UsageError('from_job' in targets ? 'No node of that job matches' : 'No server matches');
}

/** One line each, in order of name. */
export function printServers(output: Output, servers: readonly NamedServer[]): void {
  const nodes = servers.map(({ uuid, hostname = '' }) => ({ server_uuid: uuid, name: hostname }));
  for (const { server_uuid, name } of sortByName(nodes))
    output.line(`${server_uuid}  ${escapeControls(name)}`.trimEnd());
}

async function foundNow(context: Finder, targets: Targets): Promise<readonly NamedServer[]> {
  const { client } = context;
  if ('servers' in targets) return targets.servers;
  if ('where' in targets) return findServersWhere(client, targets.where);
  if ('from_job' in targets) {
    const nodes = await readJobNodes(context, targets.from_job, targets.from_status);
    return nodes.map(({ server_uuid: uuid, name: hostname }) => ({ uuid, hostname }));
  }
  const { servers = [], where } = await findDocument<ServerGroup>(client, serverGroups, targets.group);
  if (where !== undefined) return findServersWhere(client, where);
  return servers.length === 0 ? [] : findServers(client, servers);
}

const sentence = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);
