/**
 * VMs for a world: on each server one that runs, one that is being created, and the tasks about
 * them.
 */
import { randomUUID } from 'node:crypto';
import { type ReportToStore, storeReports } from '../../lib/control/servers/server-store.ts';
import type { Queryable } from '../../lib/platform/postgres/database.ts';
import type { JsonObject } from '../../lib/protocol/json/bounded-json.ts';
import type { Seat, VmKind } from './statement.ts';

/** VMs by kind and server. */
export type Vms = Partial<Record<VmKind, ReadonlyMap<string, string>>>;

/** No server has the `new` VM, and any of them may create it. */
export function newVms(seats: readonly Seat[]): Required<Vms> {
  const wanted = randomUUID();
  const ofEach = (uuid: () => string) => new Map(seats.map(({ serverUuid }) => [serverUuid, uuid()]));
  return { new: ofEach(() => wanted), creating: ofEach(randomUUID), running: ofEach(randomUUID) };
}

export const vmOf = (uuid: string, state: string, second = 1): JsonObject & { uuid: string } => {
  return { uuid, state, last_modified: `2030-01-01T00:00:0${second}.000Z` };
};

/** A report of a server's agent with these VMs. */
export function reportOf({ serverUuid, epoch }: Seat, vms: readonly (JsonObject & { uuid: string })[]): ReportToStore {
  return {
    serverUuid,
    epoch,
    report: { vms: Object.fromEntries(vms.map((one) => [one.uuid, one])), memory: {}, disk: {} },
  };
}

/** Stores that the servers report their running VMs. */
export async function reportRunning(database: Queryable, seats: readonly Seat[], { running }: Vms): Promise<void> {
  const reports = seats.map((seat) => reportOf(seat, [vmOf(running?.get(seat.serverUuid) ?? '', 'running')]));
  await storeReports(database, reports);
}

/** Rows of the middle server that a third session can lock. */
export function vmHoldsOf({ serverUuid }: Seat, vms: Vms): Record<string, string> {
  if (vms.running === undefined) return {};
  const row = (kind: VmKind) => `select 1 from cnapi_vms where _key = '${vms[kind]?.get(serverUuid)}' for update`;
  return {
    'report of VMs': `select 1 from cnapi_server_reports where server_uuid = '${serverUuid}' for update`,
    'VM running': row('running'),
    'VM creating': row('creating'),
  };
}
