/**
 * The VMs of this server by uuid: their records on disk, their present states, and a lock for each,
 * by which one action at a time works on a VM.
 */
import { messageOf } from '../../platform/errors.ts';
import type { Logger } from '../../platform/log.ts';
import type { Clock } from '../../platform/time/clock.ts';
import type { Vm } from '../../protocol/vms.ts';
import type { Containers } from '../containers/containers.ts';
import type { RecordFiles } from '../records/record-files.ts';
import { type RecordEntry, RecordTable } from '../records/record-table.ts';
import { VmError, vmNotFound, vmStateError } from './vm-errors.ts';
import { decideVm, shownState, type VmAction } from './vm-lifecycle.ts';
import type { VmRecord } from './vm-record.ts';
import { type VmContainer, vmOf } from './vm-view.ts';

export type VmEntry = RecordEntry<VmRecord>;

export interface VmTableDeps {
  clock: Clock;
  log: Logger;
  records: RecordFiles<VmRecord>;
  containers: Containers;
}

/** Further actions on the same VM are refused. */
const MAX_WAITING_ACTIONS = 16;

export class VmTable {
  readonly #deps: VmTableDeps;
  readonly records: RecordTable<VmRecord>;
  readonly #listeners = new Set<() => void>();

  constructor(deps: VmTableDeps) {
    this.#deps = deps;
    this.records = new RecordTable({
      log: deps.log,
      noun: 'vm',
      files: deps.records,
      idOf: ({ uuid }) => uuid,
      errors: {
        notFound: vmNotFound,
        unreadable: (uuid, damage) => new VmError('VmIsBusy', `VM ${uuid} ${damage}`),
        unrecorded: (uuid, cause) =>
          new VmError('VmFailed', `VM ${uuid} cannot be recorded: ${messageOf(cause)}`, cause),
      },
    });
  }

  /** Writes the record before `work` begins. @throws VmError if it cannot be written */
  create(record: VmRecord, work: (entry: VmEntry) => Promise<void>): Promise<Vm> {
    return this.records.create(record, async (entry) => {
      this.announce();
      await work(entry);
      return this.view(entry);
    });
  }

  containerOf({ record: { uuid, shouldRun } }: VmEntry): VmContainer | undefined {
    const { containers } = this.#deps;
    const damage = containers.damageOf(uuid);
    if (damage === undefined) return containers.find(uuid);
    return { state: { name: 'unreadable', reason: `Its container ${damage}`, shouldRun }, changedAt: 0 };
  }

  /** @throws VmError if the record of the container cannot be read */
  needContainerRecord(uuid: string): void {
    const damage = this.#deps.containers.damageOf(uuid);
    if (damage !== undefined) throw new VmError('VmIsBusy', `VM ${uuid} is left as it is. Its container ${damage}`);
  }

  view(entry: VmEntry): Vm {
    return vmOf(entry.record, this.containerOf(entry));
  }

  /** @throws VmError if the VM cannot do it in its state */
  decide(entry: VmEntry, action: VmAction, idempotent: boolean): 'do' | 'done' {
    const { uuid, phase } = entry.record;
    const state = shownState(phase, this.containerOf(entry)?.state);
    const decision = decideVm(action, state, { idempotent });
    if (decision === 'do' || decision === 'done') return decision;
    throw vmStateError(uuid, decision, phase.name === 'failed' ? phase.reason : undefined);
  }

  /** Waits for the lock unless too many actions wait, and works if the state allows the action. */
  async act(
    uuid: string,
    { action, idempotent = false }: { action: VmAction; idempotent?: boolean | undefined },
    work: (entry: VmEntry) => Promise<void>,
  ): Promise<Vm> {
    this.needContainerRecord(uuid);
    const entry = this.records.get(uuid);
    if (entry.lock.waiting >= MAX_WAITING_ACTIONS) throw vmStateError(uuid, 'VmIsBusy');
    return this.records.withLock(entry, async () => {
      if (this.decide(entry, action, idempotent) === 'do') await work(entry);
      return this.view(entry);
    });
  }

  /**
   * If the disk is full, an action that would not outlive the agent fails. The others continue
   * unrecorded, so that a VM can still be stopped and destroyed. @throws VmError
   */
  async save(entry: VmEntry, change: Partial<VmRecord>): Promise<void> {
    const { clock, log } = this.#deps;
    const { record: before } = entry;
    const next = { ...before, ...change, modifiedAt: clock.wallTime() };
    await this.records.save(entry, next, { isOptional: !mustBeRecorded(before, change) });
    if (change.phase !== undefined)
      log.info({ vm: next.uuid, from: before.phase, to: next.phase }, `vm: ${before.phase.name} -> ${next.phase.name}`);
    this.announce();
  }

  /** Call it when nothing of the VM is left. */
  async forget(entry: VmEntry): Promise<void> {
    await this.records.remove(entry);
    this.#deps.log.info({ vm: entry.record.uuid }, 'vms: a VM is destroyed');
    this.announce();
  }

  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  announce(): void {
    for (const listener of this.#listeners) listener();
  }
}

/** Whether the next agent would undo the change, or would treat a half-replaced VM as complete. */
function mustBeRecorded(before: VmRecord, { phase, properties, snapshots }: Partial<VmRecord>): boolean {
  if (properties !== undefined || (snapshots !== undefined && snapshots.length > before.snapshots.length)) return true;
  if (phase?.name === 'provisioned') return before.phase.name !== 'rebooting';
  return phase?.name === 'provisioning' || phase?.name === 'rolling-back';
}
