/**
 * Snapshots of root file systems: copies of what a container has changed, beside its root.
 *
 *     snapshots/NAME       a copy of upper/, or of root/ where overlay cannot be mounted
 *     snapshots/.making    one that is being made
 *     snapshots/.removing  one that is being removed
 *     restored, replaced   during a restore: the copy that becomes the root, and what it replaces
 *
 * They are removed with the root file system. A file system that can share data of files (reflink)
 * makes a copy quickly and without space.
 */
import { mkdir, readdir, rename } from 'node:fs/promises';
import { join } from 'node:path';
import type { Container, ContainerSpec } from '../container.ts';
import { writeFlatLayer } from '../layers/layer.ts';
import { containerPaths } from '../linux/container-paths.ts';
import type { RunId } from '../runtime.ts';
import { lstatIfAny } from './lstat.ts';
import { measureTree } from './measure-tree.ts';
import { unmountAll } from './mounts.ts';
import { overlayPaths } from './overlay.ts';
import { copyTree, syncFiles } from './program.ts';
import { removeTree } from './remove-tree.ts';
import type { RootSnapshots } from './root-snapshots.ts';

interface LayeredSnapshotsDeps {
  /** The directory of all containers. */
  directory: string;
  /** Mounts the root file system if it is not. @returns its path */
  mount(spec: ContainerSpec): Promise<string>;
  /** Pauses the processes of a run during the work. */
  freeze(run: RunId, work: () => Promise<void>): Promise<void>;
}

export class LayeredSnapshots implements RootSnapshots {
  readonly #deps: LayeredSnapshotsDeps;

  constructor(deps: LayeredSnapshotsDeps) {
    this.#deps = deps;
  }

  async take({ spec, state }: Container, name: string): Promise<void> {
    const { tree, snapshots } = await this.#placesOf(spec.id);
    const making = join(snapshots, '.making');
    await mkdir(snapshots, { recursive: true, mode: 0o700 });
    await removeTree(making);
    await copyDurably(making, async () => {
      const copyAll = () => copyTree(tree, making);
      if (state.name === 'running') await this.#deps.freeze({ id: spec.id, number: state.run }, copyAll);
      else await copyAll();
    });
    await removeTree(join(snapshots, name));
    await rename(making, join(snapshots, name));
  }

  async restore({ spec }: Container, name: string): Promise<void> {
    const { base, tree, snapshots } = await this.#placesOf(spec.id);
    const [restored, replaced] = [join(base, 'restored'), join(base, 'replaced')];
    await removeTree(restored);
    await copyDurably(restored, () => copyTree(join(snapshots, name), restored));
    const { root, work } = overlayPaths(base);
    await unmountAll(root);
    await removeTree(work);
    await removeTree(replaced);
    if ((await lstatIfAny(tree)) !== undefined) await rename(tree, replaced);
    await rename(restored, tree);
    await removeTree(replaced);
  }

  async measure({ spec }: Container, maxEntries: number): Promise<number> {
    return measureTree(await this.#deps.mount(spec), maxEntries);
  }

  async exportLayer({ spec }: Container, directory: string): Promise<void> {
    const root = await this.#deps.mount(spec);
    await mkdir(directory, { mode: 0o700 });
    await writeFlatLayer(directory, (to) => copyTree(root, to));
    await syncFiles(directory);
  }

  async keepOnly({ spec }: Container, names: readonly string[]): Promise<string[]> {
    const { snapshots } = await this.#placesOf(spec.id);
    if ((await lstatIfAny(snapshots)) === undefined) return [];
    const found = await readdir(snapshots);
    for (const name of found) if (!names.includes(name)) await removeTree(join(snapshots, name));
    return found.filter((name) => names.includes(name));
  }

  async remove({ spec }: Container, name: string): Promise<void> {
    const { snapshots } = await this.#placesOf(spec.id);
    const [path, removing] = [join(snapshots, name), join(snapshots, '.removing')];
    await removeTree(removing);
    if ((await lstatIfAny(path)) === undefined) return;
    await rename(path, removing);
    await removeTree(removing);
  }

  /** After a killed agent the tree may be missing, but the links to the layers exist. */
  async #placesOf(id: string): Promise<{ base: string; tree: string; snapshots: string }> {
    const base = containerPaths(this.#deps.directory, id).root;
    const { root, upper, layers } = overlayPaths(base);
    const isOverlay = (await lstatIfAny(layers)) !== undefined;
    return { base, tree: isOverlay ? upper : root, snapshots: join(base, 'snapshots') };
  }
}

/** Leaves nothing if not all of it gets on disk. */
async function copyDurably(to: string, copy: () => Promise<void>): Promise<void> {
  try {
    await copy();
    await syncFiles(to);
  } catch (error) {
    await removeTree(to);
    throw error;
  }
}
