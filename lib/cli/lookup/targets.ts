/** The servers that a command is to run on: by name, by a property, or all. */
import type { CnapiClient } from '../../client/client.ts';
import type { NamedServer } from '../../protocol/api/servers.ts';
import { UsageError } from '../terminal/usage-error.ts';
import { findServers, selectServers } from './find.ts';

export interface TargetOptions {
  all?: boolean;
  where?: string[];
}

/** @throws UsageError when no server is named in one of these ways, or in several */
export async function targetsOf(
  client: CnapiClient,
  names: readonly string[],
  { all = false, where = [] }: TargetOptions,
): Promise<NamedServer[]> {
  const queries = names.filter((name) => name.includes('='));
  if (queries.length > 0 && queries.length < names.length)
    throw new UsageError('Servers by name and by NAME=PATTERN cannot be combined');
  if (queries.length > 0) return targetsOf(client, [], { all, where: [...where, ...queries] });
  const ways = [names.length > 0, all, where.length > 0].filter(Boolean).length;
  if (ways === 0)
    throw new UsageError(
      'On which servers? Name some, or give NAME=PATTERN as with --where of cnapi servers, or --all',
    );
  if (ways > 1) throw new UsageError('Servers by name, --where and --all cannot be combined');
  const servers = names.length > 0 ? await findServers(client, names) : await selectServers(client, where);
  if (servers.length === 0) throw new UsageError('No server matches; nothing was run');
  return servers;
}
