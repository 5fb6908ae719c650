/** What a list shows of a server: `extras` widen it, `fields` narrow it. Pure. The rules are the reference's. */
import type { ServerObject } from '../servers/server.ts';
import type { Breadth } from '../servers/server-store.ts';

type Json = Record<string, unknown>;

/** What must be read for these extras. */
export function breadthOf(extras: readonly string[] | undefined): Breadth {
  const wants = wantsOf(extras);
  return {
    agents: wants('agents', 'capacity'),
    report: wants('vms', 'memory', 'disk', 'capacity'),
    sysinfo: wants('sysinfo'),
    lastHeartbeat: extras !== undefined,
  };
}

/** The server with the parts that were asked for; any extras at all add `last_heartbeat`, as clients have come to need. */
export function narrow(
  server: ServerObject,
  extras: readonly string[] | undefined,
  beatOf?: (server: ServerObject) => string | null,
): Json {
  const shown = 'vms' in server ? withoutHidden(server, wantsOf(extras)) : server;
  return beatOf === undefined ? shown : { ...shown, last_heartbeat: beatOf(server) };
}

/** What comes with an agent's report comes all at once, and with it `vms`; a server read without it has nothing to hide. */
function withoutHidden(server: ServerObject, wants: (...names: string[]) => boolean): Json {
  const hidden = (name: string) =>
    (name === 'vms' && !wants('vms')) ||
    (name.startsWith('memory_') && !wants('memory', 'capacity')) ||
    (name.startsWith('disk_') && !wants('disk', 'capacity'));
  return Object.fromEntries(Object.entries(server).filter(([name]) => !hidden(name)));
}

/** Only `fields`, where there are any. */
export function pick(server: Json, fields: readonly string[] | undefined): Json {
  if (fields === undefined) return server;
  return Object.fromEntries(fields.filter((name) => Object.hasOwn(server, name)).map((name) => [name, server[name]]));
}

/** When the server was last heard: over its session, if that is here; else by the posts that all instances recorded. */
export function lastHeartbeatOf(
  source: { lastHeartbeat?(serverUuid: string): string | null },
  server: ServerObject,
): string | null {
  return source.lastHeartbeat?.(server.uuid) ?? server.last_heartbeat ?? null;
}

function wantsOf(extras: readonly string[] | undefined): (...names: string[]) => boolean {
  return (...names) => extras?.includes('all') === true || names.some((name) => extras?.includes(name) === true);
}
