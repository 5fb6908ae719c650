/**
 * The VMs of this server by uuid: their records on disk, their present states, and a lock for each,
 * by which one action at a time works on a VM.
 */
import { isDeepStrictEqual } from 'node:util';
import { messageOf } from '../../platform/errors.ts';
import type { Logger } from '../../platform/log.ts';
import type { Clock } from '../../platform/time/clock.ts';
import type { Vm } from '../../protocol/vms.ts';
import type { Containers } from '../containers/containers.ts';
import type { RecordFiles } from '../records/record-files.ts';
import { type RecordEntry, RecordTable } from '../records/record-table.ts';
import { VmError, vmNotFound, vmStateError } from './vm-errors.ts';
import { stepVm, type VmCommand, type VmEffect, type VmEvent, type VmLife } from './vm-lifecycle.ts';
import type { VmRecord } from './vm-record.ts';
import { toVm, type VmContainer } from './vm-view.ts';

export type VmEntry = RecordEntry<VmRecord>;

/** What a record has besides the state of the VM, which only events change. */
type VmContents = Omit<VmRecord, keyof VmLife>;

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
        unreadable: (uuid, reason) =>
          new VmError(
            'VmIsBusy',
            `VM ${uuid} is left as it is: its record cannot be read (${reason}); repair the record and restart the agent, or destroy the VM`,
          ),
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
    const damage = containers.unreadableReason(uuid);
    if (damage === undefined) return containers.find(uuid);
    const reason = `The record of its container cannot be read (${damage}); repair the record and restart the agent`;
    return { state: { name: 'unreadable', reason, shouldRun }, changedAt: 0 };
  }

  /** @throws VmError if the record of the container cannot be read */
  checkContainerRecord(uuid: string): void {
    const reason = this.#deps.containers.unreadableReason(uuid);
    if (reason === undefined) return;
    throw new VmError(
      'VmIsBusy',
      `VM ${uuid} is left as it is: the record of its container cannot be read (${reason}); repair the record and restart the agent`,
    );
  }

  view(entry: VmEntry): Vm {
    return toVm(entry.record, this.containerOf(entry));
  }

  /**
   * Whether the VM is already as the command wants it. @throws VmError if it cannot do this in its
   * state
   */
  isDone(entry: VmEntry, command: VmCommand): boolean {
    return this.#stepOf(entry, command).effects.length === 0;
  }

  /** Waits for the lock unless too many actions wait, and works if the state allows the command. */
  async act(uuid: string, command: VmCommand, work: (entry: VmEntry) => Promise<void>): Promise<Vm> {
    this.checkContainerRecord(uuid);
    const entry = this.records.get(uuid);
    if (entry.lock.waiting >= MAX_WAITING_ACTIONS) throw vmStateError(uuid, 'VmIsBusy');
    return this.records.withLock(entry, async () => {
      if (!this.isDone(entry, command)) await work(entry);
      return this.view(entry);
    });
  }

  /**
   * Records the state to which the event leads, and what else changes with it. The caller carries
   * out the effects. @throws VmError as `isDone` and `save`
   */
  async enter(entry: VmEntry, event: VmEvent, change: Partial<VmContents> = {}): Promise<readonly VmEffect[]> {
    const { record } = entry;
    const { state, effects } = this.#stepOf(entry, event);
    if (state === undefined) {
      await this.#forget(entry);
      return effects;
    }
    const { phase, shouldRun } = record;
    const isBooted = effects.some((effect) => effect.do === 'start');
    const all = isBooted ? { ...change, bootedAt: this.#deps.clock.wallTime() } : change;
    if (!isDeepStrictEqual(state, { phase, shouldRun }) || Object.keys(all).length > 0)
      await this.#write(entry, { ...record, ...state, ...all });
    return effects;
  }

  /** @throws VmError if the change cannot be recorded and would not outlive the agent */
  async save(entry: VmEntry, change: Partial<VmContents>): Promise<void> {
    await this.#write(entry, { ...entry.record, ...change });
  }

  #stepOf(entry: VmEntry, event: VmEvent) {
    const { uuid, phase, shouldRun } = entry.record;
    const step = stepVm({ phase, shouldRun }, event, this.containerOf(entry)?.state);
    if (!('refusal' in step)) return step;
    throw vmStateError(uuid, step.refusal, phase.name === 'failed' ? phase.reason : undefined);
  }

  /**
   * If the disk is full, a change that would not outlive the agent fails. The others continue
   * unrecorded, so that a VM can still be stopped and destroyed.
   */
  async #write(entry: VmEntry, changed: VmRecord): Promise<void> {
    const { clock, log } = this.#deps;
    const { record: before } = entry;
    const next = { ...changed, modifiedAt: clock.wallTime() };
    await this.records.save(entry, next, { isOptional: !mustBeRecorded(before, next) });
    if (!isDeepStrictEqual(before.phase, next.phase))
      log.info({ vm: next.uuid, from: before.phase, to: next.phase }, `vm: ${before.phase.name} -> ${next.phase.name}`);
    this.announce();
  }

  async #forget(entry: VmEntry): Promise<void> {
    await this.records.remove(entry);
    this.#deps.log.info({ vm: entry.record.uuid }, 'vms: a VM is destroyed');
    this.announce();
  }

  /** Call it when nothing is left of a VM whose record cannot be read. */
  async forgetDamaged(uuid: string): Promise<void> {
    await this.records.removeDamaged(uuid);
    this.#deps.log.info({ vm: uuid }, 'vms: a VM with an unreadable record is destroyed');
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
function mustBeRecorded(before: VmRecord, { phase, properties, snapshots }: VmRecord): boolean {
  if (properties !== before.properties || snapshots.length > before.snapshots.length) return true;
  if (phase === before.phase) return false;
  if (phase.name === 'provisioned') return before.phase.name !== 'rebooting';
  return phase.name === 'provisioning' || phase.name === 'rolling-back';
}
