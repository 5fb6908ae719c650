/**
 * The VMs of this server by uuid: their records on disk, their present states, and a lock for each,
 * by which one action at a time works on a VM.
 */
import { messageOf } from '../../platform/errors.ts';
import { Semaphore } from '../../platform/limiting/semaphore.ts';
import type { Logger } from '../../platform/log.ts';
import type { Clock } from '../../platform/time/clock.ts';
import type { Vm } from '../../protocol/vms.ts';
import { unreadableRecord } from '../containers/container-errors.ts';
import type { Containers } from '../containers/containers.ts';
import type { DamagedRecord, RecordFiles } from '../records/record-files.ts';
import { VmError, vmNotFound, vmStateError } from './vm-errors.ts';
import { decideVm, shownState, type VmAction } from './vm-lifecycle.ts';
import type { VmRecord } from './vm-record.ts';
import { type VmContainer, vmOf } from './vm-view.ts';

export interface VmEntry {
  record: VmRecord;
  /** Only its holder works on the VM; other actions wait in order of arrival. */
  lock: Semaphore;
}

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
  readonly #entries = new Map<string, VmEntry>();
  readonly #listeners = new Set<() => void>();
  #damaged: readonly DamagedRecord[] = [];

  constructor(deps: VmTableDeps) {
    this.#deps = deps;
  }

  async load(): Promise<void> {
    const { records: found, damaged } = await this.#deps.records.load();
    this.#damaged = damaged;
    for (const { id, reason } of damaged)
      this.#deps.log.error({ vm: id, reason }, 'vms: a record cannot be read; its VM is left as it is');
    for (const record of found) this.#add(record);
  }

  get size(): number {
    return this.#entries.size + this.#damaged.length;
  }

  all(): VmEntry[] {
    return [...this.#entries.values()];
  }

  find(uuid: string): VmEntry | undefined {
    return this.#entries.get(uuid);
  }

  /** @throws VmError */
  get(uuid: string): VmEntry {
    const entry = this.#entries.get(uuid);
    if (entry === undefined) throw vmNotFound(uuid);
    return entry;
  }

  isDamaged(uuid: string): boolean {
    return this.#damaged.some(({ id }) => id === uuid);
  }

  /** Writes the record before `work` begins. @throws VmError if it cannot be written */
  async create(record: VmRecord, work: (entry: VmEntry) => Promise<void>): Promise<Vm> {
    const entry = this.#add(record);
    return entry.lock.run(async () => {
      try {
        await this.#deps.records.write(record);
      } catch (error) {
        this.#entries.delete(record.uuid);
        throw unrecorded(record.uuid, error);
      }
      this.announce();
      await work(entry);
      return this.view(entry);
    });
  }

  containerOf({ record: { uuid } }: VmEntry): VmContainer | undefined {
    const { containers } = this.#deps;
    const damage = containers.damageOf(uuid);
    if (damage === undefined) return containers.find(uuid);
    return { state: { name: 'unreadable', reason: `Its container ${unreadableRecord(damage)}` }, changedAt: 0 };
  }

  /** @throws VmError if the record of the container cannot be read */
  needContainerRecord(uuid: string): void {
    const damage = this.#deps.containers.damageOf(uuid);
    if (damage !== undefined)
      throw new VmError('VmIsBusy', `VM ${uuid} is left as it is. Its container ${unreadableRecord(damage)}`);
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
    const entry = this.get(uuid);
    if (entry.lock.waiting >= MAX_WAITING_ACTIONS) throw vmStateError(uuid, 'VmIsBusy');
    return this.withLock(entry, async () => {
      if (this.decide(entry, action, idempotent) === 'do') await work(entry);
      return this.view(entry);
    });
  }

  /** @throws VmError if the VM was destroyed while this waited */
  withLock<Result>(entry: VmEntry, work: () => Promise<Result>): Promise<Result> {
    return entry.lock.run(async () => {
      if (this.#entries.get(entry.record.uuid) !== entry) throw vmNotFound(entry.record.uuid);
      return work();
    });
  }

  /**
   * If the disk is full, an action that would not outlive the agent fails. The others continue
   * unrecorded, so that a VM can still be stopped and destroyed. @throws VmError
   */
  async save(entry: VmEntry, change: Partial<VmRecord>): Promise<void> {
    const { clock, records, log } = this.#deps;
    const next = { ...entry.record, ...change, modifiedAt: clock.wallTime() };
    const { uuid } = next;
    try {
      await records.write(next);
    } catch (err) {
      if (mustBeRecorded(entry.record, change)) throw unrecorded(uuid, err);
      log.error({ err, vm: uuid }, 'vms: a change cannot be recorded');
    }
    if (change.phase !== undefined)
      log.info({ vm: uuid, from: entry.record.phase, to: next.phase }, 'vms: the phase changed');
    entry.record = next;
    this.announce();
  }

  /** Call it when nothing of the VM is left. */
  async forget({ record: { uuid } }: VmEntry): Promise<void> {
    await this.#deps.records.remove(uuid);
    this.#entries.delete(uuid);
    this.#deps.log.info({ vm: uuid }, 'vms: a VM is destroyed');
    this.announce();
  }

  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  announce(): void {
    for (const listener of this.#listeners) listener();
  }

  #add(record: VmRecord): VmEntry {
    const entry = { record, lock: new Semaphore(1) };
    this.#entries.set(record.uuid, entry);
    return entry;
  }
}

/** Whether the next agent would undo the change, or would treat a half-replaced VM as complete. */
function mustBeRecorded(before: VmRecord, { phase, properties, snapshots }: Partial<VmRecord>): boolean {
  if (properties !== undefined || (snapshots !== undefined && snapshots.length > before.snapshots.length)) return true;
  if (phase?.name === 'provisioned') return before.phase.name !== 'rebooting';
  return phase?.name === 'provisioning' || phase?.name === 'rolling-back';
}

const unrecorded = (uuid: string, error: unknown) =>
  new VmError('VmFailed', `VM ${uuid} cannot be recorded: ${messageOf(error)}`, error);
