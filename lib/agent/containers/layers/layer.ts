/**
 * A layer of an image on disk: a directory with
 *
 *     root/            the tree, with owners shifted into the range of the agent's containers
 *     layer.json       what it hides of the layers below it
 *
 * `unpackLayer` makes it from an archive. It writes to a directory beside and renames it at the
 * end, after everything is on disk: a layer that exists is complete. An unpack that fails leaves
 * nothing; one that is killed leaves the directory beside, which the next unpack of this layer, or
 * `removeUnfinishedLayers`, removes.
 */
import { mkdir, readdir, readFile, rename, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { addAbortSignal, type Readable } from 'node:stream';
import { z } from 'zod';
import { messageOf } from '../../../platform/errors.ts';
import { syncDirectory } from '../../sync-directory.ts';
import { ContainerError } from '../container-errors.ts';
import { lstatIfAny } from '../root/lstat.ts';
import { syncFiles } from '../root/program.ts';
import { removeTree } from '../root/remove-tree.ts';
import { readArchive } from './archive.ts';
import { LayerError } from './layer-error.ts';
import { LayerSource } from './layer-source.ts';
import type { LayerRules } from './layer-tree.ts';
import { LayerWriter, refusalOfFile } from './layer-writer.ts';
import type { Whiteouts } from './whiteouts.ts';

interface UnpackRequest {
  /** A tar stream, plain or gzip. It is destroyed at the end. */
  archive: Readable;
  /** Must not exist; its parent must. */
  directory: string;
  rules: LayerRules;
  firstId: number;
  /** Whether the layer will be mounted with overlay. */
  isForOverlay: boolean;
  signal?: AbortSignal | undefined;
}

export interface UnpackedLayer {
  /** The digest of the received archive: `sha256:` and hexadecimal digits. */
  digest: string;
  bytes: number;
}

const description = z.strictObject({
  version: z.literal(1),
  isForOverlay: z.boolean(),
  removed: z.array(z.string()),
  opaque: z.array(z.string()),
});

export interface Layer {
  root: string;
  isForOverlay: boolean;
  /** Paths relative to the root, as in whiteouts.ts. */
  removed: string[];
  opaque: string[];
}

const UNFINISHED = '.unpacking';
const DESCRIPTION = 'layer.json';
const ROOT = 'root';

/** @throws LayerError if the archive is wrong, ContainerError for another reason */
export async function unpackLayer(request: UnpackRequest): Promise<UnpackedLayer> {
  const { archive, directory, signal } = request;
  const unfinished = directory + UNFINISHED;
  if (signal !== undefined) addAbortSignal(signal, archive);
  try {
    if ((await lstatIfAny(directory)) !== undefined) throw new ContainerError(`The layer ${directory} exists already`);
    await removeTree(unfinished);
    const unpacked = await unpackInto(unfinished, request);
    await syncFiles(unfinished);
    signal?.throwIfAborted();
    await rename(unfinished, directory);
    await syncDirectory(dirname(directory));
    return unpacked;
  } catch (error) {
    await removeTree(unfinished);
    throw failureOf(error, directory);
  } finally {
    archive.destroy();
  }
}

/** Removes the directories of unpacks that were killed. No unpack may run. */
export async function removeUnfinishedLayers(directory: string): Promise<void> {
  for (const name of await readdir(directory)) {
    if (name.endsWith(UNFINISHED)) await removeTree(join(directory, name));
  }
}

/** @throws ContainerError */
export async function readLayer(directory: string): Promise<Layer> {
  try {
    const text = await readFile(join(directory, DESCRIPTION), 'utf8');
    const { isForOverlay, removed, opaque } = description.parse(JSON.parse(text));
    return { root: join(directory, ROOT), isForOverlay, removed, opaque };
  } catch (error) {
    throw new ContainerError(`${directory} is not an unpacked layer (${messageOf(error)}); unpack it again`, error);
  }
}

/** Writes a layer that hides nothing, because no layer is below it. */
export async function writeFlatLayer(directory: string, fill: (root: string) => Promise<void>): Promise<void> {
  await fill(join(directory, ROOT));
  const layer: z.input<typeof description> = { version: 1, isForOverlay: true, removed: [], opaque: [] };
  await writeFile(join(directory, DESCRIPTION), JSON.stringify(layer));
}

async function unpackInto(directory: string, request: UnpackRequest): Promise<UnpackedLayer> {
  const { archive, rules, firstId, isForOverlay } = request;
  const root = join(directory, ROOT);
  await mkdir(directory, 0o700);
  await mkdir(root, 0o700);
  const source = new LayerSource(archive, rules.limits);
  const writer = new LayerWriter({ root, firstId, rules });
  const whiteouts = await writeAll(writer, { source, isForOverlay });
  const text = JSON.stringify({ version: 1, isForOverlay, ...whiteouts } satisfies z.input<typeof description>);
  await writeFile(join(directory, DESCRIPTION), text);
  return { digest: source.digest(), bytes: source.unpackedBytes };
}

async function writeAll(
  writer: LayerWriter,
  { source, isForOverlay }: { source: LayerSource; isForOverlay: boolean },
): Promise<Whiteouts> {
  try {
    for await (const entry of readArchive(source.bytes())) await writer.add(entry);
    return await writer.finish({ isForOverlay });
  } finally {
    await writer.settle();
  }
}

function failureOf(error: unknown, directory: string): Error {
  if (error instanceof LayerError || error instanceof ContainerError) return error;
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  if (code === 'ENOSPC' || code === 'EDQUOT')
    return new ContainerError(`The disk of ${directory} has no room for this layer; free some space`, error);
  return (
    refusalOfFile(error) ?? new ContainerError(`The layer ${directory} cannot be unpacked: ${messageOf(error)}`, error)
  );
}
