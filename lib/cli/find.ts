/** From what people write to what the API knows: servers by uuid or hostname, instances by uuid or address. */

import type { Instance, Server } from '../client/answers.ts';
import type { CnapiClient } from '../client/client.ts';
import { UsageError } from './usage-error.ts';
import { visible } from './visible.ts';
import { hasProperty, matches, parseWhere } from './where.ts';

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
const AT_ONCE = 200;

export const isUuid = (text: string): boolean => UUID.test(text);

/** @throws UsageError when none is called so, or several are */
export async function findServer(client: CnapiClient, name: string): Promise<Server> {
  const [found] = await findServers(client, [name]);
  if (found === undefined) throw new Error('findServers gave nothing');
  return found;
}

/** In the order of the names, each once. @throws UsageError naming all that cannot be found */
export async function findServers(client: CnapiClient, names: readonly string[]): Promise<Server[]> {
  const byName = new Map<string, Server[]>();
  const uuids = [...new Set(names.filter(isUuid).map((name) => name.toLowerCase()))];
  for (let at = 0; at < uuids.length; at += AT_ONCE) {
    const chunk = uuids.slice(at, at + AT_ONCE);
    for (const server of await client.servers({ uuids: chunk, limit: AT_ONCE })) byName.set(server.uuid, [server]);
  }
  for (const name of new Set(names.filter((one) => !isUuid(one)))) {
    byName.set(name, await client.servers({ hostname: name, limit: 10 }));
  }
  const complaints: string[] = [];
  const found = new Map<string, Server>();
  for (const name of names) {
    const [server, ...others] = byName.get(isUuid(name) ? name.toLowerCase() : name) ?? [];
    if (server === undefined) complaints.push(`There is no server ${visible(name)}`);
    else if (others.length > 0) complaints.push(ambiguous(name, [server, ...others]));
    else found.set(server.uuid, server);
  }
  if (complaints.length > 0) throw new UsageError(`${complaints.join('. ')}. cnapi servers lists them`);
  return [...found.values()];
}

/**
 * Those that match every `name=pattern`, each once: pages may overlap while servers come and go. All when there is none.
 * @throws UsageError for a property that no server has: misspelt, with `!=`, it would be all of them
 */
export async function selectServers(client: CnapiClient, where: readonly string[]): Promise<Server[]> {
  const conditions = where.map(parseWhere);
  const all = new Map<string, Server>();
  for await (const server of client.allServers()) all.set(server.uuid, server);
  const servers = [...all.values()];
  const strange = conditions.find((condition) => !servers.some((server) => hasProperty(server, condition)));
  if (strange !== undefined && servers.length > 0)
    throw new UsageError(
      `No server has a property ${strange.path.join('.')}; cnapi servers --json shows what they have`,
    );
  return servers.filter((server) => conditions.every((condition) => matches(server, condition)));
}

const nameOf = (server: Pick<Server, 'uuid' | 'hostname'>): string => server.hostname || server.uuid;

/** What to call each of them: the hostname, with the uuid where several share it. */
export function labelsOf(servers: readonly Server[]): Map<string, string> {
  const counts = new Map<string, number>();
  for (const server of servers) counts.set(nameOf(server), (counts.get(nameOf(server)) ?? 0) + 1);
  const labelOf = (server: Server) =>
    (counts.get(nameOf(server)) ?? 0) > 1 ? `${nameOf(server)} ${server.uuid}` : nameOf(server);
  return new Map(servers.map((server) => [server.uuid, labelOf(server)]));
}

/** By uuid, by the beginning of one, or by HOST:PORT. @throws UsageError */
export function findInstance(instances: readonly Instance[], name: string): Instance {
  const wanted = name
    .toLowerCase()
    .replace(/^https?:\/\//, '')
    .replace(/\/$/, '');
  const isIt = ({ uuid, url }: Instance) =>
    uuid === wanted || url.replace(/^https?:\/\//, '') === wanted || (wanted.length >= 4 && uuid.startsWith(wanted));
  const [found, ...others] = instances.filter(isIt);
  if (found === undefined) throw new UsageError(`There is no instance ${visible(name)}; cnapi instances lists them`);
  if (others.length > 0) throw new UsageError(`Several instances are called ${visible(name)}; give the whole uuid`);
  return found;
}

function ambiguous(name: string, servers: readonly Server[]): string {
  const each = servers.map(({ uuid }) => uuid).join(', ');
  return `Several servers are called ${visible(name)}; give one of the uuids ${each}`;
}
