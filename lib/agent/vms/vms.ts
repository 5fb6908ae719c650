/**
 * The VMs of this server. Each is a container (../containers) with a record. A new phase is on disk
 * before its work begins, so the next agent can continue. Actions on one VM happen in order, and a
 * bounded number of them waits; actions on different VMs do not wait for each other.
 * vm-lifecycle.ts decides what is allowed, vm-executor.ts does it, vm-table.ts has the records.
 */

import { CnapiError, messageOf } from '../../platform/errors.ts';
import { Semaphore } from '../../platform/limiting/semaphore.ts';
import type { Random } from '../../platform/random.ts';
import { digestOf } from '../../protocol/json/canonical-json.ts';
import {
  type Vm,
  type VmCreate,
  type VmNetworks,
  type VmSummary,
  type VmUpdate,
  vmSummaryOf,
} from '../../protocol/vms.ts';
import { NoContainersError } from '../containers/container-errors.ts';
import type { ContainerLogs } from '../containers/logs/container-logs.ts';
import { RunningVms } from './running-vms.ts';
import { VmConsoles } from './vm-consoles.ts';
import { VmError } from './vm-errors.ts';
import { signalName, VmExecutor, type VmExecutorDeps } from './vm-executor.ts';
import { NEW_VM, type VmCommand, type VmWork } from './vm-lifecycle.ts';
import { buildVmProperties, networkUpdate, updatedProperties } from './vm-properties.ts';
import { type VmEntry, VmTable, type VmTableDeps } from './vm-table.ts';
import { toDamagedVm } from './vm-view.ts';

interface VmsDeps extends VmTableDeps, Omit<VmExecutorDeps, 'table'> {
  random: Random;
  logs: Pick<ContainerLogs, 'read'>;
  /** A sentence that says why this server cannot run VMs; undefined if it can. */
  unavailableReason?: string | undefined;
  /** Default 1,000. */
  maxVms?: number | undefined;
}

/** Which VMs have the new properties, and why others do not have them. */
type NetworkUpdate = { vms: string[]; errors: { uuid: string; code: string; message: string }[] };

interface StopRequest {
  force?: boolean;
  timeoutMs?: number | undefined;
  idempotent?: boolean;
}

interface BootRequest {
  update?: Pick<VmUpdate, 'set_internal_metadata'> | undefined;
  idempotent?: boolean;
}

interface KillRequest {
  signal?: string | number;
  idempotent?: boolean;
}

type EntryWork = (entry: VmEntry) => Promise<void>;

const MAX_VMS = 1_000;
const CONCURRENT_RECOVERIES = 8;

export class Vms {
  /** What is done inside of VMs that run. */
  readonly running: RunningVms;
  readonly consoles: VmConsoles;
  readonly #deps: VmsDeps;
  readonly #table: VmTable;
  readonly #executor: VmExecutor;
  readonly #destroyingDamaged = new Semaphore(1);
  #unlisten: (() => void) | undefined;
  #recovered: Promise<unknown> | undefined;

  constructor(deps: VmsDeps) {
    this.#deps = deps;
    this.#table = new VmTable(deps);
    const { containers } = deps;
    this.running = new RunningVms({ containers, stateOf: (uuid) => this.#stateOf(uuid) });
    this.consoles = new VmConsoles({ find: (uuid) => this.running.findConsole(uuid) });
    this.#executor = new VmExecutor({ ...deps, table: this.#table });
  }

  /**
   * The containers must have started. Continues what an earlier agent had begun, before any new
   * action of the same VM.
   */
  async start(): Promise<void> {
    await this.#table.records.load();
    this.#unlisten = this.#deps.containers.onChange(({ id }) => this.#onContainer(id));
    const slots = new Semaphore(CONCURRENT_RECOVERIES);
    this.#recovered = Promise.all(this.#table.records.entries().map((entry) => this.#recover(entry, slots)));
  }

  /**
   * Resolves when the actions that an earlier agent had begun are done, which may take as long as a
   * stop.
   */
  async recovered(): Promise<void> {
    await this.#recovered;
  }

  /** Leaves the VMs as they are: the next agent continues. */
  async stop(): Promise<void> {
    this.#unlisten?.();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  /** Lists only VMs whose record is on disk: a crash cannot remove a listed VM. */
  list(): Vm[] {
    const entries = this.#table.records.entries().filter(({ isOnDisk }) => isOnDisk);
    return entries.map((entry) => this.#table.view(entry));
  }

  /**
   * The VMs in the form of a status frame. One whose record cannot be read has failed, and lacks
   * fields.
   */
  summaries(): Record<string, Partial<VmSummary>> {
    const readable = this.list().map((one) => [one.uuid, vmSummaryOf(one)] as const);
    const damaged = this.#table.records.damagedIds().map((uuid) => [uuid, this.#damagedSummary(uuid)] as const);
    return Object.fromEntries([...readable, ...damaged]);
  }

  /** Calls the listener after each change of a VM. Returns a function that unsubscribes. */
  onChange(listener: () => void): () => void {
    return this.#table.onChange(listener);
  }

  /** @throws VmError */
  async load(uuid: string): Promise<Vm> {
    const one = this.#table.view(this.#table.records.get(uuid));
    if (one.state !== 'running') return one;
    const [pid] = await this.#deps.containers.processes(uuid).catch(() => []);
    return pid === undefined ? one : { ...one, pid };
  }

  /** What the program of the VM has printed. @throws VmError */
  readLog(uuid: string, request: Parameters<ContainerLogs['read']>[1]): ReturnType<ContainerLogs['read']> {
    this.#table.records.get(uuid);
    return this.#deps.logs.read(uuid, request);
  }

  /**
   * Creates the VM and starts it, unless `autoboot` is false. A repeated create with the same
   * payload returns the VM in its present state. @throws VmError, InvalidVmError
   */
  async create(request: VmCreate): Promise<Vm> {
    const { unavailableReason, clock, random, maxVms = MAX_VMS } = this.#deps;
    if (unavailableReason !== undefined) throw new NoContainersError(unavailableReason);
    const { uuid } = request;
    const digest = digestOf(request);
    const repeated = this.#repeated(uuid, digest);
    if (repeated !== undefined) return repeated;
    const properties = buildVmProperties(request, random);
    const spec = await this.#executor.specOf(uuid, properties);
    // Meanwhile another request may have created the same VM.
    const existing = this.#repeated(uuid, digest);
    if (existing !== undefined) return existing;
    if (this.#table.records.size >= maxVms)
      throw new VmError('TooManyVms', `This server has the maximum of ${maxVms} VMs; destroy one first`);
    const now = clock.wallTime();
    const fresh = {
      uuid,
      createDigest: digest,
      properties,
      snapshots: [],
      createdAt: now,
      modifiedAt: now,
    };
    return this.#table.create({ ...fresh, ...NEW_VM }, (entry) =>
      this.#executor.provision(entry, spec, { isStarted: properties.autoboot }),
    );
  }

  boot(uuid: string, { update, idempotent }: BootRequest = {}): Promise<Vm> {
    const prepare = (entry: VmEntry) => this.#updateMetadata(entry, update);
    return this.#act(uuid, { type: 'boot', idempotent }, { prepare });
  }

  /** `force` kills the VM immediately, also while another stop waits. */
  async shutdown(uuid: string, { force = false, timeoutMs, idempotent }: StopRequest = {}): Promise<Vm> {
    if (force) return this.kill(uuid, { idempotent: idempotent ?? false });
    return this.#act(uuid, { type: 'shutdown', timeoutMs, idempotent });
  }

  reboot(uuid: string, { update, force = false, timeoutMs, idempotent }: StopRequest & BootRequest = {}): Promise<Vm> {
    const prepare = (entry: VmEntry) => this.#updateMetadata(entry, update);
    return this.#act(uuid, { type: 'reboot', timeoutMs: force ? 0 : timeoutMs, idempotent }, { prepare });
  }

  /** Does not wait for other actions, so it can end a slow stop. */
  async kill(uuid: string, { signal = 'SIGKILL', idempotent = false }: KillRequest = {}): Promise<Vm> {
    const command = { type: 'kill', signal: signalName(signal), idempotent } as const;
    this.#table.checkContainerRecord(uuid);
    const entry = this.#table.records.get(uuid);
    await this.#executor.handle(entry, command);
    return this.#table.view(entry);
  }

  update(uuid: string, update: VmUpdate): Promise<Vm> {
    const changesNics = [update.add_nics, update.remove_nics, update.update_nics].some((one) => (one ?? []).length > 0);
    return this.#work(uuid, 'update', async (entry) => {
      await this.#update(entry, update);
      // A change of interfaces takes effect with a reboot, as with vmadm.
      if (changesNics && this.#table.view(entry).state === 'running')
        await this.#executor.handle(entry, { type: 'reboot' });
    });
  }

  /**
   * Gives VMs the new gateways and resolvers of a network, from their next start on. Each VM by
   * itself.
   */
  async updateNetworks({ original_network: before, networks }: VmNetworks): Promise<NetworkUpdate> {
    const after = networks.find(({ uuid }) => uuid === before.uuid);
    const update: NetworkUpdate = { vms: [], errors: [] };
    if (after === undefined) return update;
    const isOn = ({ nics }: Vm) => nics.some(({ network_uuid }) => network_uuid === before.uuid);
    for (const vm of this.list().filter(isOn)) {
      const { uuid } = vm;
      try {
        const change = networkUpdate(vm, before, after);
        await this.#work(uuid, 'update', (entry) => this.#update(entry, change));
        update.vms.push(uuid);
      } catch (error) {
        const code = error instanceof CnapiError ? error.code : 'VmFailed';
        update.errors.push({ uuid, code, message: messageOf(error) });
      }
    }
    return update;
  }

  /** Replaces the root file system by that of another image; snapshots are lost. */
  reprovision(uuid: string, imageUuid: string): Promise<Vm> {
    return this.#work(uuid, 'reprovision', async (entry) => {
      const properties = { ...entry.record.properties, image_uuid: imageUuid };
      const spec = await this.#executor.specOf(uuid, properties);
      await this.#executor.reprovision(entry, { properties, spec });
    });
  }

  /** Also if its record cannot be read. Idempotent: resolves if the VM does not exist. */
  async destroy(uuid: string): Promise<void> {
    if (this.#table.records.unreadableReason(uuid) !== undefined) return this.#destroyDamaged(uuid);
    try {
      await this.#act(uuid, { type: 'destroy' });
    } catch (error) {
      if (!(error instanceof VmError && error.code === 'VmNotFound')) throw error;
    }
  }

  createSnapshot(uuid: string, name: string): Promise<Vm> {
    return this.#work(uuid, 'create-snapshot', (entry) => this.#executor.takeSnapshot(entry, name));
  }

  rollbackSnapshot(uuid: string, name: string): Promise<Vm> {
    const prepare = async (entry: VmEntry) => this.#executor.checkSnapshot(entry, name);
    return this.#act(uuid, { type: 'rollback-snapshot', snapshot: name }, { prepare });
  }

  deleteSnapshot(uuid: string, name: string): Promise<Vm> {
    return this.#work(uuid, 'delete-snapshot', (entry) => this.#executor.deleteSnapshot(entry, name));
  }

  /** Makes an image of the root file system of a stopped VM. */
  createImage(uuid: string, imageUuid: string): Promise<Vm> {
    return this.#work(uuid, 'create-image', (entry) => this.#executor.createImage(entry, imageUuid));
  }

  #work(uuid: string, type: VmWork, work: EntryWork): Promise<Vm> {
    return this.#act(uuid, { type }, { work });
  }

  /**
   * `prepare` may fail, before anything of the command is done. `work` is the effect of that name.
   */
  #act(
    uuid: string,
    command: VmCommand,
    { prepare, work }: { prepare?: EntryWork; work?: EntryWork } = {},
  ): Promise<Vm> {
    return this.#table.act(uuid, command, async (entry) => {
      await prepare?.(entry);
      await this.#executor.handle(entry, command, work && (() => work(entry)));
    });
  }

  /** Destroys one VM at a time: a destroy that waited must not remove a VM created meanwhile. */
  #destroyDamaged(uuid: string): Promise<void> {
    return this.#destroyingDamaged.run(async () => {
      if (this.#table.records.unreadableReason(uuid) === undefined) return;
      this.#table.checkContainerRecord(uuid);
      await this.#executor.removeContainer(uuid);
      await this.#table.forgetDamaged(uuid);
    });
  }

  #damagedSummary(uuid: string): Partial<VmSummary> {
    const { records } = this.#table;
    const { containers } = this.#deps;
    const container = containers.unreadableReason(uuid) === undefined ? containers.find(uuid) : undefined;
    return toDamagedVm(uuid, records.unreadableReason(uuid) ?? '', container);
  }

  /** @throws VmError */
  #stateOf(uuid: string): Vm['state'] {
    const { state } = this.#table.view(this.#table.records.get(uuid));
    this.#table.checkContainerRecord(uuid);
    return state;
  }

  /** The answer to a create of a VM that exists. */
  #repeated(uuid: string, digest: string): Promise<Vm> | undefined {
    this.#table.checkContainerRecord(uuid);
    const entry = this.#table.records.find(uuid);
    if (entry === undefined) return undefined;
    if (entry.record.createDigest !== digest)
      throw new VmError('VmExists', `VM ${uuid} exists already, with other properties; destroy it first`);
    return this.#table.records.withLock(entry, async () => {
      const one = this.#table.view(entry);
      if (one.state !== 'failed') return one;
      throw new VmError('VmFailed', `VM ${uuid} has failed: ${one.error}`);
    });
  }

  async #updateMetadata(entry: VmEntry, update: BootRequest['update']): Promise<void> {
    if (update?.set_internal_metadata !== undefined) await this.#update(entry, update);
  }

  /** Limits change immediately, other properties with the next start. */
  async #update(entry: VmEntry, update: VmUpdate): Promise<void> {
    const { uuid, properties: now } = entry.record;
    const properties = updatedProperties(now, update, this.#deps.random);
    const spec = await this.#executor.specOf(uuid, properties);
    await this.#table.save(entry, { properties });
    await this.#deps.containers.change(spec);
  }

  /** Takes the lock immediately, and works when a slot is free. */
  #recover(entry: VmEntry, slots: Semaphore): Promise<void> {
    return this.#logFailure(entry.record.uuid, () =>
      this.#table.records.withLock(entry, () => slots.run(() => this.#continue(entry))),
    );
  }

  async #continue(entry: VmEntry): Promise<void> {
    const { autoboot } = entry.record.properties;
    await this.#executor.handle(entry, { type: 'recovered', autoboot });
  }

  #onContainer(id: string): void {
    const entry = this.#table.records.peek(id);
    if (entry === undefined) return;
    this.#table.announce();
    if (this.#table.containerOf(entry)?.state.name !== 'stopped') return;
    void this.#logFailure(id, () =>
      entry.lock.run(async () => {
        if (this.#table.records.has(entry)) await this.#executor.handle(entry, { type: 'stopped' });
      }),
    );
  }

  /** Runs `work`, and logs its failure. */
  async #logFailure(uuid: string, work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (err) {
      this.#deps.log.error({ err, vm: uuid }, 'vms: work on a VM failed');
    }
  }
}
