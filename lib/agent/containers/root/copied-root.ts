/**
 * A root file system as a copy of its layers, where overlay cannot be mounted. The copy is made
 * beside and renamed when it is complete.
 */
import { mkdir, opendir, rename } from 'node:fs/promises';
import { join } from 'node:path';
import type { Layer } from '../layers/layer.ts';
import { lstatIfAny } from './lstat.ts';
import { copyTree, syncFiles } from './program.ts';
import { removeTree } from './remove-tree.ts';

/** Copies unless `root` exists. @param layers the lowest first */
export async function copyLayers(root: string, layers: readonly Layer[]): Promise<void> {
  if ((await lstatIfAny(root)) !== undefined) return;
  const unfinished = `${root}.copying`;
  await removeTree(unfinished);
  try {
    await mkdir(unfinished, 0o700);
    for (const layer of layers) await copyLayer(layer, unfinished);
    await syncFiles(unfinished);
    await rename(unfinished, root);
  } catch (error) {
    await removeTree(unfinished);
    throw error;
  }
}

/**
 * What the layer replaces is removed first: `cp` writes through links of the target. After that
 * each directory of the layer is a real directory in the target, or absent, so the whiteouts lead
 * nowhere else.
 */
async function copyLayer(layer: Layer, target: string): Promise<void> {
  await removeReplaced(layer.root, target);
  const hidden = layer.removed.map((path) => join(target, path));
  for (const path of hidden) await removeTree(path);
  for (const path of layer.opaque) await empty(join(target, path));
  await copyTree(layer.root, target);
  // The layer may hold the devices by which overlay removes names.
  for (const path of hidden) await removeTree(path);
}

async function removeReplaced(layer: string, target: string): Promise<void> {
  for await (const entry of await opendir(layer)) {
    const [from, to] = [join(layer, entry.name), join(target, entry.name)];
    const found = await lstatIfAny(to);
    if (found === undefined) continue;
    if (entry.isDirectory() && found.isDirectory()) await removeReplaced(from, to);
    else await removeTree(to);
  }
}

async function empty(directory: string): Promise<void> {
  if ((await lstatIfAny(directory)) === undefined) return;
  for await (const { name } of await opendir(directory)) await removeTree(join(directory, name));
}
