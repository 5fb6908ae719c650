/**
 * Carries out the actions on a VM. The caller holds the lock of the VM. An action that fails either
 * changes nothing or leaves the VM `failed` with the reason; the caller receives the reason.
 */
import { constants } from 'node:os';
import { isDeepStrictEqual } from 'node:util';
import { messageOf } from '../../platform/errors.ts';
import type { Logger } from '../../platform/log.ts';
import type { Clock } from '../../platform/time/clock.ts';
import { MAX_VM_SNAPSHOTS, VM_STOP_MS, type VmProperties } from '../../protocol/vms.ts';
import type { ContainerSpec } from '../containers/container.ts';
import { ContainerNotFoundError, InvalidContainerSpecError } from '../containers/container-errors.ts';
import type { Containers } from '../containers/containers.ts';
import type { RootSnapshots } from '../containers/root/root-snapshots.ts';
import { InvalidVmError, VmError } from './vm-errors.ts';
import type { VmImages } from './vm-images.ts';
import type { VmRecord } from './vm-record.ts';
import { containerInputOf, vmFields } from './vm-spec.ts';
import type { VmEntry } from './vm-table.ts';

export interface VmExecutorDeps {
  clock: Clock;
  log: Logger;
  containers: Containers;
  snapshots: RootSnapshots;
  images: VmImages;
  /** @throws InvalidContainerSpecError */
  parse(input: unknown): Promise<ContainerSpec>;
  save(entry: VmEntry, change: Partial<VmRecord>): Promise<void>;
}

const STOP_SIGNAL = 'SIGTERM';

export class VmExecutor {
  readonly #deps: VmExecutorDeps;

  constructor(deps: VmExecutorDeps) {
    this.#deps = deps;
  }

  /** The specification of the container of a VM. @throws VmError, InvalidVmError */
  async specOf(uuid: string, properties: VmProperties): Promise<ContainerSpec> {
    const { images, parse } = this.#deps;
    const image = await images.get(properties.image_uuid);
    if (image === undefined)
      throw new VmError(
        'ImageNotFound',
        `Image ${properties.image_uuid} is not on this server; load it with image_ensure_present`,
      );
    try {
      return await parse(containerInputOf(uuid, properties, image));
    } catch (error) {
      if (error instanceof InvalidContainerSpecError) throw new InvalidVmError(vmFields(error.errors ?? []));
      throw error;
    }
  }

  /** Creates the container of a VM that has none. */
  async provision(entry: VmEntry, spec: ContainerSpec, { isStarted }: { isStarted: boolean }): Promise<void> {
    const { containers, images, save } = this.#deps;
    const { uuid, properties } = entry.record;
    try {
      await images.use(properties.image_uuid, uuid);
      const { state } = await containers.create(spec);
      if (state.name === 'failed') throw new Error(state.reason);
      await save(entry, { phase: { name: 'provisioned' }, shouldRun: isStarted });
      if (isStarted) await this.start(entry);
    } catch (error) {
      const reason = messageOf(error);
      await save(entry, { phase: { name: 'failed', reason }, shouldRun: false });
      throw new VmError('VmFailed', `VM ${uuid} could not be created: ${reason}`, error);
    }
  }

  /** Starts the VM again if it was running. The VM has the new image before anything of it is removed. */
  async reprovision(entry: VmEntry, { properties, spec }: { properties: VmProperties; spec: ContainerSpec }) {
    const { images, save } = this.#deps;
    const { uuid, shouldRun: isStarted, properties: before } = entry.record;
    await images.use(properties.image_uuid, uuid);
    try {
      await save(entry, { properties, phase: { name: 'provisioning', by: 'reprovision' }, snapshots: [] });
    } catch (error) {
      await images.release(uuid, before.image_uuid);
      throw error;
    }
    try {
      await this.removeContainer(entry, { exceptImage: properties.image_uuid });
    } catch (error) {
      const reason = `Its container could not be removed: ${messageOf(error)}`;
      await save(entry, { phase: { name: 'failed', reason }, shouldRun: false });
      throw new VmError('VmFailed', `VM ${uuid} has failed. ${reason}`, error);
    }
    await this.provision(entry, spec, { isStarted });
  }

  /** Deletes the container and releases its images. Idempotent. */
  async removeContainer({ record }: VmEntry, { exceptImage }: { exceptImage?: string } = {}): Promise<void> {
    const { containers, images } = this.#deps;
    try {
      await containers.delete(record.uuid, { force: true });
    } catch (error) {
      if (!(error instanceof ContainerNotFoundError)) throw error;
    }
    await images.release(record.uuid, exceptImage);
  }

  async start(entry: VmEntry): Promise<void> {
    const { containers, clock, save } = this.#deps;
    const { uuid } = entry.record;
    await save(entry, { shouldRun: true, bootedAt: clock.wallTime() });
    const { state } = await containers.startContainer(uuid);
    if (state.name !== 'stopped' || !('unknown' in state.exit)) return;
    await save(entry, { shouldRun: false });
    throw new VmError('VmFailed', `VM ${uuid} could not be started: ${state.exit.unknown}`);
  }

  async stop(entry: VmEntry, timeoutMs = VM_STOP_MS): Promise<void> {
    await this.#deps.save(entry, { shouldRun: false });
    await this.#deps.containers.stopContainer(entry.record.uuid, { signal: STOP_SIGNAL, timeoutMs });
  }

  /** If the agent ends meanwhile, the next agent continues. */
  async restart(entry: VmEntry, timeoutMs = VM_STOP_MS): Promise<void> {
    const { containers, save } = this.#deps;
    await save(entry, { phase: { name: 'rebooting' } });
    try {
      await containers.stopContainer(entry.record.uuid, { signal: STOP_SIGNAL, timeoutMs });
      await this.start(entry);
    } finally {
      await save(entry, { phase: { name: 'provisioned' } });
    }
  }

  /** Gives the container the recorded properties, which a killed agent may not have applied. */
  async reconcileContainer(entry: VmEntry): Promise<void> {
    const { containers, log } = this.#deps;
    const { record } = entry;
    if (record.phase.name === 'failed') return;
    try {
      await this.#reconcileSnapshots(entry);
      const spec = await this.specOf(record.uuid, record.properties);
      const { root, ...own } = containers.get(record.uuid).spec;
      if (!isDeepStrictEqual({ root, ...own }, { ...spec, root })) await containers.change(spec);
    } catch (err) {
      log.warn(
        { err, vm: record.uuid },
        'vms: the container of a VM cannot be updated to its properties; it stays as it is',
      );
    }
  }

  /** The record names a snapshot that is gone if the disk was full when it was deleted. */
  async #reconcileSnapshots(entry: VmEntry): Promise<void> {
    const { containers, snapshots, save } = this.#deps;
    const { uuid, snapshots: known } = entry.record;
    const names = known.map(({ name }) => name);
    const kept = await containers.withLock(uuid, ({ container }) => snapshots.keepOnly(container, names));
    if (kept.length < known.length) await save(entry, { snapshots: known.filter(({ name }) => kept.includes(name)) });
  }

  /** Pauses the processes of a running VM meanwhile. */
  async takeSnapshot(entry: VmEntry, name: string): Promise<void> {
    const { clock, containers, snapshots, save } = this.#deps;
    const { uuid, snapshots: known } = entry.record;
    if (known.some((one) => one.name === name))
      throw new VmError(
        'SnapshotExists',
        `VM ${uuid} has a snapshot ${name} already; delete it, or choose another name`,
      );
    if (known.length >= MAX_VM_SNAPSHOTS)
      throw new VmError(
        'TooManySnapshots',
        `VM ${uuid} has the maximum of ${known.length} snapshots; delete one first`,
      );
    const created_at = new Date(clock.wallTime()).toISOString();
    await containers.withLock(uuid, ({ container }) => snapshots.take(container, name));
    try {
      await save(entry, { snapshots: [...known, { name, created_at }] });
    } catch (error) {
      await containers.withLock(uuid, ({ container }) => snapshots.remove(container, name));
      throw error;
    }
  }

  /** Stops a running VM and starts it again. Idempotent: the next agent repeats it if this one ends meanwhile. */
  async rollBack(entry: VmEntry, name: string): Promise<void> {
    const { containers, snapshots, save } = this.#deps;
    const { uuid } = entry.record;
    this.#needSnapshot(entry, name);
    const { state } = containers.get(uuid);
    const isRunning = state.name === 'running' || state.name === 'stopping';
    await save(entry, {
      phase: { name: 'rolling-back', snapshot: name },
      shouldRun: entry.record.shouldRun || isRunning,
    });
    try {
      await containers.stopContainer(uuid, { signal: STOP_SIGNAL, timeoutMs: VM_STOP_MS });
      await containers.withLock(uuid, ({ container }) => snapshots.restore(container, name));
      await save(entry, { phase: { name: 'provisioned' } });
    } catch (error) {
      const reason = `Its snapshot ${name} could not be restored: ${messageOf(error)}`;
      await save(entry, { phase: { name: 'failed', reason }, shouldRun: false });
      throw new VmError('VmFailed', `VM ${uuid} has failed. ${reason}`, error);
    }
    if (entry.record.shouldRun) await this.start(entry);
  }

  async deleteSnapshot(entry: VmEntry, name: string): Promise<void> {
    const { containers, snapshots, save } = this.#deps;
    this.#needSnapshot(entry, name);
    const { uuid } = entry.record;
    // The name first: the next agent must not offer a snapshot of which a part is gone.
    await save(entry, { snapshots: entry.record.snapshots.filter((one) => one.name !== name) });
    await containers.withLock(uuid, ({ container }) => snapshots.remove(container, name));
  }

  /** VMs of the new image start the same program as this VM. */
  async createImage({ record }: VmEntry, imageUuid: string): Promise<void> {
    const { containers, snapshots, images } = this.#deps;
    await containers.withLock(record.uuid, async ({ container }) => {
      const { args, env, directory, uid, gid } = container.spec.process;
      const defaults = {
        Cmd: args,
        Env: Object.entries(env).map(([name, value]) => `${name}=${value}`),
        WorkingDir: directory,
        User: `${uid}:${gid}`,
      };
      await images.add(imageUuid, defaults, {
        measure: (maxEntries) => snapshots.measure(container, maxEntries),
        write: (directory) => snapshots.exportLayer(container, directory),
      });
    });
  }

  #needSnapshot({ record }: VmEntry, name: string): void {
    if (record.snapshots.some((one) => one.name === name)) return;
    throw new VmError('SnapshotNotFound', `VM ${record.uuid} has no snapshot ${name}`);
  }
}

/** The name of a signal that is given as SIGTERM, TERM or 15. @throws InvalidVmError */
export function signalName(signal: string | number): string {
  const known = Object.entries(constants.signals);
  const text = String(signal).toUpperCase();
  const found = known.find(([name, number]) => name === text || name === `SIG${text}` || String(number) === text);
  if (found !== undefined) return found[0];
  throw new InvalidVmError([{ field: 'signal', code: 'Invalid', message: `is not a signal: ${text.slice(0, 20)}` }]);
}
