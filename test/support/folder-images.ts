/**
 * Images that are unpacked layers already: the layer of image UUID is the directory UUID among the
 * layers of this server, with its configuration in UUID.json beside it, if it has one.
 */
import { access, readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { removeTree } from '../../lib/agent/containers/root/remove-tree.ts';
import { imageExists } from '../../lib/agent/vms/vm-errors.ts';
import type { ImageDefaults, VmImage, VmImages } from '../../lib/agent/vms/vm-images.ts';

export class FolderImages implements VmImages {
  readonly #directory: string;

  constructor(directory: string) {
    this.#directory = directory;
  }

  async get(uuid: string): Promise<VmImage | undefined> {
    const layer = join(this.#directory, uuid);
    const isThere = await access(layer).then(
      () => true,
      () => false,
    );
    if (!isThere) return undefined;
    const text = await readFile(`${layer}.json`, 'utf8').catch(() => '{}');
    return { layers: [layer], defaults: JSON.parse(text) as ImageDefaults };
  }

  async add(uuid: string, defaults: ImageDefaults, fill: (directory: string) => Promise<void>): Promise<void> {
    if ((await this.get(uuid)) !== undefined) throw imageExists(uuid);
    const layer = join(this.#directory, uuid);
    // The next agent removes one that is not finished.
    const unfinished = `${layer}.unpacking`;
    try {
      await fill(unfinished);
      await writeFile(`${layer}.json`, JSON.stringify(defaults));
      await rename(unfinished, layer);
    } catch (error) {
      await removeTree(unfinished);
      throw error;
    }
  }

  /** Nothing removes a layer here. */
  async use(): Promise<void> {
    // No user is counted.
  }

  async release(): Promise<void> {
    // As `use`.
  }
}
