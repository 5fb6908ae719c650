/** A VM as the agent reports it, from its record and its container. */
import { MIB } from '../../platform/byte-units.ts';
import { definedFields } from '../../platform/defined-fields.ts';
import { DEFAULT_BRAND, type Vm, type VmSummary } from '../../protocol/vms.ts';
import type { Container } from '../containers/container.ts';
import type { ContainerExit } from '../containers/lifecycle.ts';
import { statusOfSignal } from '../machine/exit-status.ts';
import { shownState, type VmContainerState, ZONE_STATES } from './vm-lifecycle.ts';
import type { VmRecord } from './vm-record.ts';

/** Instances leave out a longer text. */
const MAX_ERROR_CHARS = 500;

export interface VmContainer {
  state: VmContainerState;
  changedAt: number;
}

export function toVm(record: VmRecord, container: VmContainer | undefined): Vm {
  const state = shownState(record.phase, container?.state);
  const exit = container?.state.name === 'stopped' ? container.state.exit : undefined;
  const changedAt = Math.max(record.modifiedAt, container?.changedAt ?? 0);
  return {
    uuid: record.uuid,
    zonename: record.uuid,
    ...record.properties,
    state,
    zone_state: ZONE_STATES[state],
    create_timestamp: iso(record.createdAt),
    last_modified: iso(changedAt),
    ...definedFields({ boot_timestamp: record.bootedAt === undefined ? undefined : iso(record.bootedAt) }),
    ...(exit === undefined || container === undefined
      ? {}
      : { exit_timestamp: iso(container.changedAt), exit_status: statusOf(exit) }),
    ...definedFields({ error: errorOf(record, container, exit) }),
    snapshots: [...record.snapshots],
  };
}

/**
 * A VM whose record cannot be read, in the form of a status frame. `reason`: why it cannot be read.
 * Its container has the limits, for placement: it may run.
 */
export function toDamagedVm(uuid: string, reason: string, container: Container | undefined): Partial<VmSummary> {
  const limits = container?.spec.limits;
  return {
    uuid,
    brand: DEFAULT_BRAND,
    state: 'failed',
    zone_state: ZONE_STATES.failed,
    error: `The record of the VM cannot be read (${reason}); repair the record and restart the agent`
      .slice(0, MAX_ERROR_CHARS)
      .toWellFormed(),
    ...(limits && { max_physical_memory: Math.ceil(limits.memoryBytes / MIB), cpu_cap: limits.cpuPercent }),
    ...(container && { last_modified: iso(container.changedAt) }),
  };
}

function errorOf({ phase }: VmRecord, container: VmContainer | undefined, exit: ContainerExit | undefined) {
  if (container?.state.name === 'unreadable') return container.state.reason;
  if (phase.name === 'failed') return phase.reason;
  if (container === undefined && phase.name === 'provisioned') return 'The container of the VM no longer exists';
  if (container?.state.name === 'failed') return container.state.reason;
  if (exit === undefined) return undefined;
  if ('unknown' in exit) return exit.unknown;
  return exit.outOfMemory === true ? 'The kernel ended it because its memory was used up' : undefined;
}

function statusOf(exit: ContainerExit): number | null {
  if ('code' in exit) return exit.code;
  if ('signal' in exit) return statusOfSignal(exit.signal);
  return null;
}

const iso = (ms: number): string => new Date(ms).toISOString();
