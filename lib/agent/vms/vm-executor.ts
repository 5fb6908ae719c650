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
import type { ImageStore } from '../images/image-store.ts';
import { InvalidVmError, VmError } from './vm-errors.ts';
import type { VmEffect, VmEvent } from './vm-lifecycle.ts';
import { buildContainerInput, vmFields } from './vm-spec.ts';
import type { VmEntry, VmTable } from './vm-table.ts';

export interface VmExecutorDeps {
  clock: Clock;
  log: Logger;
  containers: Containers;
  snapshots: RootSnapshots;
  images: ImageStore;
  /** @throws InvalidContainerSpecError */
  parse(input: unknown): Promise<ContainerSpec>;
  table: Pick<VmTable, 'enter' | 'save'>;
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
      return await parse(buildContainerInput(uuid, properties, image));
    } catch (error) {
      if (error instanceof InvalidContainerSpecError) throw new InvalidVmError(vmFields(error.errors ?? []));
      throw error;
    }
  }

  /**
   * Records where the event leads and carries out what follows; `work` is that of the command
   * itself.
   */
  async handle(entry: VmEntry, event: VmEvent, work?: () => Promise<void>): Promise<void> {
    await this.#perform(entry, await this.#deps.table.enter(entry, event), work);
  }

  async #perform(entry: VmEntry, effects: readonly VmEffect[], work?: () => Promise<void>): Promise<void> {
    for (const effect of effects) await this.#performOne(entry, effect, work);
  }

  #performOne(entry: VmEntry, effect: VmEffect, work?: () => Promise<void>): Promise<void> | undefined {
    switch (effect.do) {
      case 'work':
        return work?.();
      case 'start':
        return this.#start(entry);
      case 'stop':
        return this.#stop(entry, effect.timeoutMs);
      case 'restart':
        return this.#restart(entry, effect.timeoutMs);
      case 'kill':
        return this.#kill(entry, effect.signal);
      case 'roll-back':
        return this.#rollBack(entry, effect.snapshot);
      case 'remove':
        return this.#remove(entry);
      case 'reconcile':
        return this.#reconcileContainer(entry);
      default:
        return effect satisfies never;
    }
  }

  /** Creates the container of a VM that has none. */
  async provision(entry: VmEntry, spec: ContainerSpec, { isStarted }: { isStarted: boolean }): Promise<void> {
    const { containers, images } = this.#deps;
    const { uuid, properties } = entry.record;
    try {
      await images.use(properties.image_uuid, uuid);
      const { state } = await containers.create(spec);
      if (state.name === 'failed') throw new Error(state.reason);
      await this.handle(entry, { type: 'provisioned', isStarted });
    } catch (error) {
      const reason = messageOf(error);
      await this.handle(entry, { type: 'failed', reason });
      throw new VmError('VmFailed', `VM ${uuid} could not be created: ${reason}`, error);
    }
  }

  /**
   * Starts the VM again if it was running. The VM has the new image before anything of it is
   * removed.
   */
  async reprovision(entry: VmEntry, { properties, spec }: { properties: VmProperties; spec: ContainerSpec }) {
    const { images, table } = this.#deps;
    const { uuid, shouldRun: isStarted, properties: before } = entry.record;
    await images.use(properties.image_uuid, uuid);
    try {
      await table.enter(entry, { type: 'replacing' }, { properties, snapshots: [] });
    } catch (error) {
      await images.release(uuid, before.image_uuid);
      throw error;
    }
    try {
      await this.removeContainer(uuid, { exceptImage: properties.image_uuid });
    } catch (error) {
      await this.#fail(entry, `The container of the VM could not be removed: ${messageOf(error)}`, error);
    }
    await this.provision(entry, spec, { isStarted });
  }

  /** Deletes the container and releases its images. Idempotent. */
  async removeContainer(uuid: string, { exceptImage }: { exceptImage?: string } = {}): Promise<void> {
    const { containers, images } = this.#deps;
    try {
      await containers.delete(uuid, { force: true });
    } catch (error) {
      if (!(error instanceof ContainerNotFoundError)) throw error;
    }
    await images.release(uuid, exceptImage);
  }

  async #remove(entry: VmEntry): Promise<void> {
    await this.removeContainer(entry.record.uuid);
    await this.handle(entry, { type: 'removed' });
  }

  async #start(entry: VmEntry): Promise<void> {
    const { uuid } = entry.record;
    const { state } = await this.#deps.containers.startContainer(uuid);
    if (state.name !== 'stopped' || !('unknown' in state.exit)) return;
    await this.handle(entry, { type: 'start-failed' });
    throw new VmError('VmFailed', `VM ${uuid} could not be started: ${state.exit.unknown}`);
  }

  async #stop({ record: { uuid } }: VmEntry, timeoutMs: number): Promise<void> {
    await this.#deps.containers.stopContainer(uuid, { signal: STOP_SIGNAL, timeoutMs });
  }

  async #kill({ record: { uuid } }: VmEntry, signal: string): Promise<void> {
    const { containers } = this.#deps;
    if (signal === 'SIGKILL') await containers.stopContainer(uuid, { signal, timeoutMs: 0 });
    else await containers.signal(uuid, signal);
  }

  /** If the agent ends meanwhile, the next agent continues. */
  async #restart(entry: VmEntry, timeoutMs: number): Promise<void> {
    try {
      await this.#stop(entry, timeoutMs);
      await this.handle(entry, { type: 'halted' });
    } finally {
      await this.handle(entry, { type: 'rebooted' });
    }
  }

  async #reconcileContainer(entry: VmEntry): Promise<void> {
    const { containers, log } = this.#deps;
    const { record } = entry;
    try {
      await this.#reconcileSnapshots(entry);
      const spec = await this.specOf(record.uuid, record.properties);
      const { root, ...own } = containers.get(record.uuid).spec;
      if (!isDeepStrictEqual({ root, ...own }, { ...spec, root })) await containers.change(spec);
    } catch (err) {
      log.warn(
        { err, vm: record.uuid },
        'vms: cannot apply the properties of a VM to its container, which keeps the old ones',
      );
    }
  }

  /** The record names a snapshot that is gone if the disk was full when it was deleted. */
  async #reconcileSnapshots(entry: VmEntry): Promise<void> {
    const { containers, snapshots, table } = this.#deps;
    const { uuid, snapshots: known } = entry.record;
    const names = known.map(({ name }) => name);
    const kept = await containers.withLock(uuid, ({ container }) => snapshots.keepOnly(container, names));
    const left = known.filter(({ name }) => kept.includes(name));
    if (left.length < known.length) await table.save(entry, { snapshots: left });
  }

  /** Pauses the processes of a running VM meanwhile. */
  async takeSnapshot(entry: VmEntry, name: string): Promise<void> {
    const { clock, containers, snapshots, table } = this.#deps;
    const { uuid, snapshots: taken } = entry.record;
    if (taken.some((snapshot) => snapshot.name === name))
      throw new VmError(
        'SnapshotExists',
        `VM ${uuid} has a snapshot ${name} already; delete it, or choose another name`,
      );
    if (taken.length >= MAX_VM_SNAPSHOTS)
      throw new VmError(
        'TooManySnapshots',
        `VM ${uuid} has the maximum of ${taken.length} snapshots; delete one first`,
      );
    const created_at = new Date(clock.wallTime()).toISOString();
    await containers.withLock(uuid, ({ container }) => snapshots.take(container, name));
    try {
      await table.save(entry, { snapshots: [...taken, { name, created_at }] });
    } catch (error) {
      await containers.withLock(uuid, ({ container }) => snapshots.remove(container, name));
      throw error;
    }
  }

  /** Idempotent: the next agent repeats it if this one ends meanwhile. */
  async #rollBack(entry: VmEntry, name: string): Promise<void> {
    const { containers, snapshots, table } = this.#deps;
    let effects: readonly VmEffect[] = [];
    try {
      await this.#stop(entry, VM_STOP_MS);
      await containers.withLock(entry.record.uuid, ({ container }) => snapshots.restore(container, name));
      effects = await table.enter(entry, { type: 'rolled-back' });
    } catch (error) {
      await this.#fail(entry, `Snapshot ${name} of the VM could not be restored: ${messageOf(error)}`, error);
    }
    await this.#perform(entry, effects);
  }

  async #fail(entry: VmEntry, reason: string, cause: unknown): Promise<never> {
    await this.handle(entry, { type: 'failed', reason });
    throw new VmError('VmFailed', `VM ${entry.record.uuid} has failed. ${reason}`, cause);
  }

  async deleteSnapshot(entry: VmEntry, name: string): Promise<void> {
    const { containers, snapshots, table } = this.#deps;
    this.checkSnapshot(entry, name);
    const { uuid } = entry.record;
    // The name first: the next agent must not offer a snapshot of which a part is gone.
    await table.save(entry, { snapshots: entry.record.snapshots.filter((one) => one.name !== name) });
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

  /** @throws VmError */
  checkSnapshot({ record }: VmEntry, name: string): void {
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
