/**
 * The root file systems of containers, and the layers from which they are made. Each has a
 * directory of its own. It is an overlay of the layers where that can be mounted, and a copy
 * elsewhere; both differ in the time and the space that they take.
 *
 * A read-only root is made read-only by the runtime, inside the mount namespace of the container,
 * after it has mounted what belongs there.
 */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { messageOf } from '../../../platform/errors.ts';
import type { ContainerSpec } from '../container.ts';
import { ContainerError } from '../container-errors.ts';
import { type Layer, readLayer, removeUnfinishedLayers, type UnpackedLayer, unpackLayer } from '../layers/layer.ts';
import type { LayerLimits } from '../layers/layer-tree.ts';
import type { RootFileSystems } from '../linux/linux-runtime.ts';
import type { UidRange } from '../oci/oci-config.ts';
import { copyLayers } from './copied-root.ts';
import { lstatIfAny } from './lstat.ts';
import { unmountAll } from './mounts.ts';
import { MAX_OVERLAY_LAYERS, mountOverlay, type OverlayPaths, overlayPaths, overlayRefusal } from './overlay.ts';
import { removeTree } from './remove-tree.ts';
import { makeStandardFiles } from './standard-files.ts';

interface Options {
  /** The directory of all containers; a check makes a directory in it and removes it. */
  directory: string;
  ids: UidRange;
}

interface LayerOptions {
  limits: LayerLimits;
  signal?: AbortSignal;
}

/**
 * A container's root user can traverse the directory; other users of the machine cannot list it.
 */
const DIRECTORY_MODE = 0o711;

export class LayeredRootFileSystems implements RootFileSystems {
  /** Why root file systems are copied on this machine; undefined if overlay is used. */
  readonly copyReason: string | undefined;
  readonly #ids: UidRange;
  readonly #unpacking = new Set<string>();

  private constructor(ids: UidRange, copyReason: string | undefined) {
    this.#ids = ids;
    this.copyReason = copyReason;
  }

  /** Finds out what this machine can do. */
  static async open({ directory, ids }: Options): Promise<LayeredRootFileSystems> {
    return new LayeredRootFileSystems(ids, await overlayRefusal(join(directory, 'overlay-probe')));
  }

  /**
   * Unpacks the archive of a layer (tar, plain or gzip) into a directory that does not exist yet.
   * An unpack that fails leaves nothing. A stream that stalls is ended by `signal`.
   * @throws LayerError if the archive is wrong, ContainerError for another reason
   */
  async unpack(archive: Readable, directory: string, options: LayerOptions): Promise<UnpackedLayer> {
    const { limits, signal } = options;
    if (this.#unpacking.has(directory)) throw new ContainerError(`The layer ${directory} is being unpacked already`);
    this.#unpacking.add(directory);
    try {
      return await unpackLayer({
        archive,
        directory,
        rules: { limits, ids: this.#ids.count },
        firstId: this.#ids.first,
        isForOverlay: this.copyReason === undefined,
        signal,
      });
    } finally {
      this.#unpacking.delete(directory);
    }
  }

  /** Removes what unpacks of a killed agent have left among the layers of a directory. */
  async removeUnfinished(directory: string): Promise<void> {
    await removeUnfinishedLayers(directory);
  }

  /**
   * The root file system of a container in its own directory. It is made if it does not exist, and
   * mounted if it is not, as after a restart of the machine: call it before each start.
   * @returns its path
   * @throws ContainerError; `remove` removes what is left then
   */
  async make(spec: Pick<ContainerSpec, 'id' | 'root'>, directory: string): Promise<string> {
    const layers = visible(await Promise.all(spec.root.layers.map(readLayer)));
    if (layers.length === 0) throw new ContainerError(`Container ${spec.id} has no layers; give its image`);
    try {
      await mkdir(directory, { recursive: true, mode: DIRECTORY_MODE });
      const paths = overlayPaths(directory);
      if (await this.#isOverlay(paths, layers)) await makeOverlay(paths, layers);
      else await copyLayers(paths.root, layers);
      await makeStandardFiles(paths.root, this.#ids.first);
      return paths.root;
    } catch (error) {
      if (error instanceof ContainerError) throw error;
      throw new ContainerError(
        `The root file system of container ${spec.id} cannot be made: ${messageOf(error)}`,
        error,
      );
    }
  }

  /**
   * Unmounts a root file system and removes its directory. Idempotent. A root file system in use is
   * detached. @throws ContainerError if something else is mounted there
   */
  async remove(directory: string): Promise<void> {
    const found = await lstatIfAny(directory);
    // A mount at the target of a link does not belong to the agent.
    if (found?.isDirectory()) await unmountAll(overlayPaths(directory).root);
    await removeTree(directory);
  }

  /** An existing root file system keeps its kind: it contains changes of the container. */
  async #isOverlay({ upper, root }: OverlayPaths, layers: readonly Layer[]): Promise<boolean> {
    if ((await lstatIfAny(upper)) !== undefined) return true;
    if ((await lstatIfAny(root)) !== undefined) return false;
    return this.copyReason === undefined && layers.every(isMountable);
  }
}

async function makeOverlay(paths: OverlayPaths, layers: readonly Layer[]): Promise<void> {
  if (layers.length > MAX_OVERLAY_LAYERS) {
    const limit = `overlay takes ${MAX_OVERLAY_LAYERS}; combine layers of the image`;
    throw new ContainerError(`The image has ${layers.length} layers, and ${limit}`);
  }
  await mountOverlay(
    paths,
    layers.map(({ root }) => root),
  );
}

const isMountable = ({ isForOverlay, removed, opaque }: Layer): boolean =>
  isForOverlay || removed.length + opaque.length === 0;

/** Layers below a layer with an opaque root are not visible. */
function visible(layers: readonly Layer[]): Layer[] {
  const lowest = layers.findLastIndex(({ opaque }) => opaque.includes(''));
  return layers.slice(Math.max(lowest, 0));
}
