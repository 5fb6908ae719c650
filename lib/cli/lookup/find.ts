/**
 * Maps what users write to what the API knows: servers, tasks, tickets and instances, by their id,
 * the beginning of it, their hostname or their address. Used by the commands of all nouns.
 */

import type { CnapiClient } from '../../client/client.ts';
import { ApiError } from '../../client/client-errors.ts';
import { chunksOf } from '../../platform/chunks.ts';
import { isUuid } from '../../protocol/api/contract/rules.ts';
import type { Instance } from '../../protocol/api/instances.ts';
import type { NamedServer } from '../../protocol/api/servers.ts';
import { UsageError } from '../terminal/command-errors.ts';
import { escapeControls } from '../terminal/escape-controls.ts';
import { hasProperty, matches, noSuchProperty, parseWhereOption } from './where.ts';

const HYPHENS = new Set([8, 13, 18, 23]);
const AT_ONCE = 200;

/** @throws UsageError when no server or several servers have the name */
export async function findServer(client: CnapiClient, name: string): Promise<NamedServer> {
  const [found] = await findServers(client, [name]);
  if (found === undefined) throw new Error('findServers gave nothing');
  return found;
}

/** A uuid is not looked up: its server may not exist yet, or not any more. @throws UsageError */
export async function findServerUuid(client: CnapiClient, name: string): Promise<string> {
  return isUuid(name) ? name.toLowerCase() : (await findServer(client, name)).uuid;
}

/** The server of a queue of locks: `default` for those of the datacenter. @throws UsageError */
export async function findQueueServer(client: CnapiClient, name: string): Promise<string> {
  return name === 'default' ? name : (await findServer(client, name)).uuid;
}

/**
 * Returns the servers in the order of the names, without duplicates.
 * @throws UsageError that names all that were not found
 */
export async function findServers(client: CnapiClient, names: readonly string[]): Promise<NamedServer[]> {
  const byName = new Map<string, NamedServer[]>();
  const uuids = [...new Set(names.filter(isUuid).map((name) => name.toLowerCase()))];
  for (const chunk of chunksOf(uuids, AT_ONCE)) {
    for (const server of await client.servers({ uuids: chunk, limit: AT_ONCE })) byName.set(server.uuid, [server]);
  }
  for (const name of new Set(names.filter((text) => !isUuid(text)))) {
    byName.set(name, await client.servers({ hostname: name, limit: 10 }));
  }
  // Also of those that are hostnames: whoever means the other server must not reach this one.
  for (const [name, servers] of await byPrefix(client, names)) {
    const named = byName.get(name) ?? [];
    byName.set(name, [...named, ...servers.filter(({ uuid }) => named.every((server) => server.uuid !== uuid))]);
  }
  const complaints: string[] = [];
  const serversByUuid = new Map<string, NamedServer>();
  for (const name of names) {
    const [server, ...others] = byName.get(isUuid(name) ? name.toLowerCase() : name) ?? [];
    if (server === undefined) complaints.push(`There is no server ${escapeControls(name)}${tooShort(name)}`);
    else if (others.length > 0) complaints.push(ambiguous(name, [server, ...others]));
    else serversByUuid.set(server.uuid, server);
  }
  if (complaints.length > 0) throw new UsageError(`${complaints.join('. ')}. cnapi servers lists them`);
  return [...serversByUuid.values()];
}

/** Finds the servers whose uuids begin with each name. */
async function byPrefix(client: CnapiClient, names: readonly string[]): Promise<Map<string, NamedServer[]>> {
  const prefixes = names.filter((name) => isPrefix(name));
  if (prefixes.length === 0) return new Map();
  const servers = await Array.fromAsync(client.allServers({ fields: 'uuid,hostname,status' }));
  return new Map(
    prefixes.map((prefix) => [prefix, servers.filter(({ uuid }) => uuid.startsWith(prefix.toLowerCase()))]),
  );
}

const LEAST_PREFIX = 4;

const tooShort = (text: string): string =>
  text.length < LEAST_PREFIX && /^[0-9a-f]+$/i.test(text)
    ? ` (the beginning of a uuid has at least ${LEAST_PREFIX} characters)`
    : '';

/** The beginning of a uuid, long enough not to be confused with another name. */
export const isPrefix = (text: string): boolean =>
  text.length >= LEAST_PREFIX &&
  text.length < 36 &&
  [...text].every((one, at) => (HYPHENS.has(at) ? one === '-' : /[0-9a-f]/i.test(one)));

/** Finds a task by its id or the beginning of its id. @throws UsageError */
export async function findTask(client: CnapiClient, text: string): Promise<string> {
  if (isUuid(text)) return text;
  checkPrefix('a task', text);
  const { tasks } = await client.tasks({ id_prefix: text.toLowerCase(), limit: 5 }).catch(unlessOlder);
  const ids = tasks.map(({ id }) => id);
  return uniqueMatch('task', text, ids);
}

/**
 * Explains a 404 about a task whose whole id was given, because `findTask` does not look such a
 * task up.
 */
export function explainNoTask(error: unknown, id: string): never {
  if (error instanceof ApiError && error.code === 'ResourceNotFound')
    throw new UsageError(`There is no task ${id}; cnapi tasks lists them`);
  throw error;
}

/** Finds an open ticket by its uuid or the beginning of its uuid. @throws UsageError */
export async function findTicket(client: CnapiClient, text: string): Promise<string> {
  if (isUuid(text)) return text;
  checkPrefix('a ticket', text);
  const uuids = new Set<string>();
  for (const { server_uuid, scope, id, holder, depth } of await client.queues()) {
    if (holder !== null) uuids.add(holder.uuid);
    const waiting = depth === 0 ? [] : await client.openTickets(server_uuid, { scope, id });
    for (const { uuid } of waiting) uuids.add(uuid);
  }
  return uniqueMatch('open ticket', text, [...uuids]);
}

/** @throws UsageError */
export function checkPrefix(what: string, text: string): void {
  if (isPrefix(text)) return;
  throw new UsageError(
    `${escapeControls(text)} is not the id of ${what}, nor the beginning of one, which has at least ${LEAST_PREFIX} characters`,
  );
}

/** The id that begins with `prefix`. @throws UsageError when there is none, or more than one */
export function uniqueMatch(what: string, prefix: string, ids: readonly string[]): string {
  const [found, ...others] = ids.filter((id) => id.startsWith(prefix.toLowerCase()));
  if (found === undefined) throw new UsageError(`There is no ${what} whose id begins with ${escapeControls(prefix)}`);
  if (others.length === 0) return found;
  throw new UsageError(
    `The ids of several ${what}s begin with ${escapeControls(prefix)}: ${[found, ...others].slice(0, 5).join(', ')}`,
  );
}

/** An instance of an earlier version has no list of all tasks. */
function unlessOlder(error: unknown): never {
  if (error instanceof ApiError && error.code === 'ResourceNotFound')
    throw new UsageError('This instance is of an earlier version, which finds tasks only by their whole id');
  throw error;
}

/**
 * Returns the servers that match every `name=pattern`, or all servers if there is no condition.
 * @throws UsageError for a property that no server has: with `!=`, a misspelt name would select all
 * servers
 */
export async function findServersWhere(client: CnapiClient, where: readonly string[]): Promise<NamedServer[]> {
  const conditions = where.map(parseWhereOption);
  const servers = await Array.fromAsync(client.allServers());
  const unknown = conditions.find((condition) => !servers.some((server) => hasProperty(server, condition)));
  if (unknown !== undefined && servers.length > 0) throw noSuchProperty(unknown);
  return servers.filter((server) => conditions.every((condition) => matches(server, condition)));
}

const nameOf = (server: Pick<NamedServer, 'uuid' | 'hostname'>): string => server.hostname || server.uuid;

/** Returns a label for each server: its hostname, with the uuid if several share it. */
export function labelsOf(servers: readonly NamedServer[]): Map<string, string> {
  const counts = new Map<string, number>();
  for (const server of servers) counts.set(nameOf(server), (counts.get(nameOf(server)) ?? 0) + 1);
  const labelOf = (server: NamedServer) =>
    (counts.get(nameOf(server)) ?? 0) > 1 ? `${nameOf(server)} ${server.uuid}` : nameOf(server);
  return new Map(servers.map((server) => [server.uuid, labelOf(server)]));
}

/** Returns a function that maps the uuids of these objects' servers to their labels. */
export async function serverLabels(
  client: CnapiClient,
  listed: readonly { server_uuid?: string | null | undefined }[],
): Promise<(uuid: string) => string> {
  const uuids = [...new Set(listed.flatMap(({ server_uuid }) => server_uuid ?? []))].slice(0, 200);
  const servers = uuids.length === 0 ? [] : await client.servers({ uuids, fields: 'uuid,hostname', limit: 1000 });
  const names = labelsOf(servers);
  return (uuid) => names.get(uuid) ?? uuid;
}

/** Finds an instance by its uuid, the beginning of its uuid, or HOST:PORT. @throws UsageError */
export function findInstance(instances: readonly Instance[], name: string): Instance {
  const wanted = name
    .toLowerCase()
    .replace(/^https?:\/\//, '')
    .replace(/\/$/, '');
  const isIt = ({ uuid, url }: Instance) =>
    uuid === wanted ||
    url.replace(/^https?:\/\//, '') === wanted ||
    (wanted.length >= LEAST_PREFIX && uuid.startsWith(wanted));
  const [instance, ...others] = instances.filter(isIt);
  if (instance === undefined)
    throw new UsageError(`There is no instance ${escapeControls(name)}${tooShort(name)}; cnapi instances lists them`);
  if (others.length > 0)
    throw new UsageError(`Several instances are called ${escapeControls(name)}; give the whole uuid`);
  return instance;
}

function ambiguous(name: string, servers: readonly NamedServer[]): string {
  const each = servers.map(({ uuid }) => uuid).join(', ');
  return `Several servers are called ${escapeControls(name)}; give one of the uuids ${each}`;
}
