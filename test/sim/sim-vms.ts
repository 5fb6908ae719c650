/**
 * The VMs of a server of the simulated world, as its agent's records of them: they stay when the
 * agent's process ends. In place of containers and files; the tasks are the product's own.
 */

import { VmError } from '../../lib/agent/vms/vm-errors.ts';
import { ZONE_STATES } from '../../lib/agent/vms/vm-lifecycle.ts';
import type { Vms } from '../../lib/agent/vms/vms.ts';
import type { VmSummary } from '../../lib/protocol/vms.ts';
import type { SimProcess } from './sim-process.ts';

/** On the disk of the server. */
export type VmDisk = Map<string, VmSummary>;

type Used = Pick<Vms, 'summaries' | 'onChange'>;

export class SimVms implements Used {
  readonly #disk: VmDisk;
  readonly #had: Set<string>;
  readonly #process: SimProcess;
  readonly #listeners = new Set<() => void>();
  /** The actions of one VM happen in order. */
  readonly #last = new Map<string, Promise<unknown>>();

  /** What the process before has begun, this one ends: see docs/design/vms.md. */
  constructor({ vms: disk, hadVms }: { vms: VmDisk; hadVms: Set<string> }, process: SimProcess) {
    this.#disk = disk;
    this.#had = hadVms;
    this.#process = process;
    for (const vm of [...disk.values()]) {
      if (vm.state === 'provisioning') this.#set({ ...vm, state: 'failed' });
      if (vm.state === 'stopping') this.#set({ ...vm, state: 'stopped' });
      if (vm.state === 'destroying') disk.delete(vm.uuid);
    }
  }

  /** This object with the type that the agent and the tasks of the product expect. */
  get asVms(): Vms {
    return this as unknown as Vms;
  }

  summaries(): Record<string, VmSummary> {
    return Object.fromEntries(this.#disk);
  }

  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  create({ uuid, image_uuid }: { uuid: string; image_uuid: string }): Promise<VmSummary> {
    return this.#inTurn(uuid, async () => {
      const known = this.#disk.get(uuid);
      if (known !== undefined) return known;
      const common = { uuid, image_uuid, brand: 'oci', cpu_cap: 100, max_physical_memory: 64, quota: 1 };
      this.#set({ ...common, state: 'provisioning', zone_state: '', last_modified: '' });
      await this.#works();
      return this.#set({ ...this.#known(uuid), state: 'running' });
    });
  }

  boot({ uuid }: { uuid: string }): Promise<VmSummary> {
    return this.#inTurn(uuid, async () => {
      if (this.#known(uuid).state !== 'stopped') throw new VmError('VmAlreadyRunning', uuid);
      await this.#works();
      return this.#set({ ...this.#known(uuid), state: 'running' });
    });
  }

  shutdown({ uuid }: { uuid: string }): Promise<VmSummary> {
    return this.#inTurn(uuid, async () => {
      if (this.#known(uuid).state !== 'running') throw new VmError('VmNotRunning', uuid);
      this.#set({ ...this.#known(uuid), state: 'stopping' });
      await this.#works();
      return this.#set({ ...this.#known(uuid), state: 'stopped' });
    });
  }

  destroy(uuid: string): Promise<void> {
    return this.#inTurn(uuid, async () => {
      if (!this.#disk.has(uuid)) return;
      this.#set({ ...this.#known(uuid), state: 'destroying' });
      await this.#works();
      this.#disk.delete(uuid);
      this.#tell();
    });
  }

  #known(uuid: string): VmSummary {
    const vm = this.#disk.get(uuid);
    if (vm === undefined) throw new VmError('VmNotFound', uuid);
    return vm;
  }

  #set(vm: VmSummary): VmSummary {
    const last_modified = new Date(this.#process.clock.wallTime()).toISOString();
    const changed = { ...vm, zone_state: ZONE_STATES[vm.state], last_modified };
    this.#disk.set(vm.uuid, changed);
    this.#had.add(vm.uuid);
    this.#tell();
    return changed;
  }

  #tell(): void {
    for (const listener of this.#listeners) listener();
  }

  #works(): Promise<void> {
    return this.#process.clock.sleep(this.#process.random.between(10, 1_500));
  }

  #inTurn<Result>(uuid: string, act: () => Promise<Result>): Promise<Result> {
    const turn = (this.#last.get(uuid) ?? Promise.resolve()).then(act, act);
    this.#last.set(uuid, turn);
    return turn;
  }
}
