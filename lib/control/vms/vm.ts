/** A VM as it is stored, and as callers see it. Pure. */
import { definedFields } from '../../platform/defined-fields.ts';
import type { ServerStatus } from '../../protocol/api/servers.ts';
import type { StoredVm } from '../../protocol/api/vms.ts';
import type { JsonObject } from '../../protocol/json/bounded-json.ts';

/** A value of the bucket (`migrations/001-vms.sql`). */
export interface VmDocument extends JsonObject {
  uuid: string;
  server_uuid: string;
  /** `claim`: the idempotency key of the task that created the VM, or that task's id. */
  control?: { claim?: string; unreported?: boolean; ended?: boolean };
}

/**
 * The fields that every reader may see. A list of what is shown: a field that is added later, or
 * that an agent makes up, stays hidden until it is listed here. Metadata, tags, programs and their
 * environment may contain passwords and keys.
 */
const SHOWN = [
  'uuid',
  'server_uuid',
  'alias',
  'brand',
  'state',
  'zone_state',
  'owner_uuid',
  'image_uuid',
  'max_physical_memory',
  'cpu_cap',
  'quota',
  'last_modified',
  'exit_status',
  'error',
] as const satisfies readonly (keyof StoredVm)[];

export function shownVm(vm: VmDocument): StoredVm {
  return fieldsOf(vm, SHOWN) as StoredVm;
}

/**
 * The VM for callers who may not see the contents of tasks. `error` comes from the server, and may
 * quote the program of the VM or name paths of the server.
 */
export function withoutReason(vm: StoredVm): StoredVm {
  return vm.error === undefined ? vm : { ...vm, error: 'The reason is shown to callers with the role operator' };
}

/**
 * A VM with the state of its server: while that is `unknown`, nobody knows whether the VM runs. The
 * state stays as it was reported last, because clients of Triton know no state for this.
 */
export function vmWithServer(
  vm: VmDocument,
  server: { status: ServerStatus; reportStoredAt: Date | null } | undefined,
): StoredVm {
  const asOf = server?.reportStoredAt?.toISOString();
  return { ...shownVm(vm), server_status: server?.status ?? 'unknown', ...definedFields({ as_of: asOf }) };
}

/**
 * The fields that Triton's list of the VMs of a server has; a new field of our own does not belong
 * there.
 */
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
  return { uuid: vm.uuid, ...fieldsOf(vm, LISTED) };
}

function fieldsOf(vm: VmDocument, fields: readonly string[]): JsonObject {
  return Object.fromEntries(fields.flatMap((field) => (vm[field] === undefined ? [] : [[field, vm[field]]])));
}
