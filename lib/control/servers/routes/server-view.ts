/**
 * A server as callers see it. In a list, `extras` widen it and `fields` narrow it; the rules are
 * Triton's. What boot parameters say is left out before (boot/boot-parameters.ts). Pure.
 */
import type { StatusChange } from '../../../protocol/api/servers.ts';
import type { JsonObject } from '../../../protocol/json/bounded-json.ts';
import type { ServerObject } from '../server.ts';
import type { PartSelection } from '../server-store.ts';

/**
 * How many times a server promises its processors, memory and disk to VMs. Of the configuration and
 * the same for all servers, whatever was posted, as in Triton.
 */
export type OverprovisionRatios = Readonly<Record<'cpu' | 'ram' | 'disk', number>>;

/** What must be read for these extras. */
export function selectParts(extras: readonly string[] | undefined): PartSelection {
  const wants = wantsOf(extras);
  return {
    agents: wants('agents', 'capacity'),
    report: wants('vms', 'memory', 'disk', 'capacity'),
    sysinfo: wants('sysinfo'),
    lastHeartbeat: extras !== undefined,
  };
}

/** The whole server. `overSession`: as for `lastHeartbeatOf`. */
export function toServer(
  server: ServerObject,
  ratios: OverprovisionRatios,
  overSession: (serverUuid: string) => string | null,
) {
  const last_heartbeat = lastHeartbeatOf(overSession, server);
  return { ...server, overprovision_ratios: { ...ratios }, last_heartbeat };
}

/**
 * The server with the requested parts; any extras add `last_heartbeat`, because clients rely on it.
 */
export function toListedServer(
  server: ServerObject,
  extras: readonly string[] | undefined,
  ratios: OverprovisionRatios,
  heartbeatOf?: (server: ServerObject) => string | null,
): JsonObject {
  const wants = wantsOf(extras);
  const shown = 'vms' in server ? withoutHidden(server, wants) : server;
  if (wants('capacity')) shown.overprovision_ratios = { ...ratios };
  return heartbeatOf === undefined ? shown : { ...shown, last_heartbeat: heartbeatOf(server) };
}

/**
 * An agent's report supplies these fields together with `vms`; a server read without it has none of
 * them.
 */
function withoutHidden(server: ServerObject, wants: (...names: string[]) => boolean): JsonObject {
  const hidden = (name: string) =>
    (name === 'vms' && !wants('vms')) ||
    (name.startsWith('memory_') && !wants('memory', 'capacity')) ||
    (name.startsWith('disk_') && !wants('disk', 'capacity'));
  return Object.fromEntries(Object.entries(server).filter(([name]) => !hidden(name)));
}

/** Only `fields`, if there are any. */
export function pickFields(server: JsonObject, fields: readonly string[] | undefined): JsonObject {
  if (fields === undefined) return server;
  return Object.fromEntries(fields.filter((name) => Object.hasOwn(server, name)).map((name) => [name, server[name]]));
}

/**
 * When the server was last heard: over its session, if this instance has it; else from the posts
 * that all instances recorded.
 */
export function lastHeartbeatOf(
  overSession: (serverUuid: string) => string | null,
  server: ServerObject,
): string | null {
  return overSession(server.uuid) ?? server.last_heartbeat ?? null;
}

function wantsOf(extras: readonly string[] | undefined): (...names: string[]) => boolean {
  return (...names) => extras?.includes('all') === true || names.some((name) => extras?.includes(name) === true);
}

/** `since`: the database's time. */
export interface RecordedStatusChange extends Omit<StatusChange, 'since'> {
  since: Date;
}

export function toStatusChange({ since, ...change }: RecordedStatusChange): StatusChange {
  return { ...change, since: since.toISOString() };
}
