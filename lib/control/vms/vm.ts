/** A VM as it is stored, and as callers see it. Pure. */
import type { StoredVm } from '../../protocol/api/vms.ts';
import type { JsonObject } from '../../protocol/json/bounded-json.ts';

/** A value of the bucket (`migrations/001-vms.sql`). */
export interface VmDocument extends JsonObject {
  uuid: string;
  server_uuid: string;
  control?: { claim?: string; unreported?: boolean; ended?: boolean };
}

/** Leaves out what only the control plane needs. */
export function shownVm({ control: _, ...shown }: VmDocument): StoredVm {
  return shown as StoredVm;
}

/** The fields that Triton's list of the VMs of a server has; a new field of our own does not belong there. */
const LISTED = [
  'uuid',
  'owner_uuid',
  'quota',
  'max_physical_memory',
  'zone_state',
  'state',
  'brand',
  'cpu_cap',
  'last_modified',
] as const satisfies readonly (keyof StoredVm)[];

export function vmOfServer(vm: VmDocument): JsonObject & { uuid: string } {
  const listed = LISTED.flatMap((field) => (vm[field] === undefined ? [] : [[field, vm[field]]]));
  return { uuid: vm.uuid, ...Object.fromEntries(listed) };
}

/** Fields that may contain passwords and keys; only callers who may run tasks see them. */
const CONFIDENTIAL = ['customer_metadata', 'internal_metadata'];

export function withoutConfidential(vm: JsonObject): JsonObject {
  const shown = Object.entries(vm).filter(([field]) => !CONFIDENTIAL.includes(field));
  return shown.length === Object.keys(vm).length ? vm : { ...Object.fromEntries(shown), withheld: true };
}
