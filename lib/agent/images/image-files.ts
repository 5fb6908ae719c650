/**
 * What images have on disk: archives that arrive, and unpacked layers. images.ts has their states.
 * A layer that no image and no container needs is removed; nobody unpacks meanwhile.
 */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { mkdir, readdir, rm, stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { Semaphore } from '../../platform/limiting/semaphore.ts';
import type { Clock } from '../../platform/time/clock.ts';
import type { Containers } from '../containers/containers.ts';
import type { LayerLimits } from '../containers/layers/layer-tree.ts';
import type { LayeredRootFileSystems } from '../containers/root/layered-root-file-systems.ts';
import { lstatIfAny } from '../containers/root/lstat.ts';
import { measureTree } from '../containers/root/measure-tree.ts';
import { removeTree } from '../containers/root/remove-tree.ts';
import type { RecordTable } from '../records/record-table.ts';
import { noteOf } from './download.ts';
import { layerNameOf, type StoredImage } from './image.ts';
import { type LayerArchive, readImageArchive } from './image-archive.ts';
import { ImageBusyError, InvalidImageError } from './image-errors.ts';
import { ImageSpace } from './image-space.ts';
import type { ImageContents } from './image-store.ts';

export interface ImageFilesDeps {
  clock: Clock;
  /** DATA/images. */
  directory: string;
  /** DATA/containers/layers. */
  layers: string;
  unpack: LayeredRootFileSystems['unpack'];
  /**
   * Size limit of the unpacked layers of all images and of the archives that are arriving,
   * together.
   */
  maxBytes: number;
  /** Containers may use layers that no image record names any more. */
  containers: Pick<Containers, 'list' | 'hasUnreadable'>;
}

type Deps = ImageFilesDeps & { images: Pick<RecordTable<StoredImage>, 'list' | 'hasUnreadable'> };

export type Unpacked = Pick<StoredImage, 'layers' | 'config'>;

const MAX_ENTRIES = 500_000;
const MAX_NAME_BYTES = 64 * 1024 * 1024;
/** How long an incomplete archive is kept. */
const KEPT_PART_MS = 24 * 3_600_000;
/** Other directories beside the layers are left alone. */
const LAYER_NAME = /^[0-9a-f]{64}$/;

export class ImageFiles {
  readonly #deps: Deps;
  /** The disk space of all images together. */
  readonly space: ImageSpace;
  /** Held while layers are unpacked, and while unused layers are removed. */
  readonly #layerLock = new Semaphore(1);

  constructor(deps: Deps) {
    this.#deps = deps;
    this.space = new ImageSpace({ ...deps, list: () => deps.images.list() });
  }

  /** Removes incomplete archives of an earlier agent that are too old to be continued. */
  async start(): Promise<void> {
    await mkdir(this.#incoming(), { recursive: true, mode: 0o700 });
    await this.#removeOldParts();
  }

  /** Path of an image's archive while it arrives. */
  archiveOf(uuid: string): string {
    return join(this.#incoming(), uuid);
  }

  /** Path of an unpacked layer. */
  layer(digest: string): string {
    return join(this.#deps.layers, layerNameOf(digest));
  }

  /**
   * Unpacks the layers of a complete archive. `done` must record that the image has them; they
   * cannot be removed before it returns. @throws InvalidImageError
   */
  unpack(
    uuid: string,
    { digest, signal, done }: { digest: string; signal: AbortSignal; done(unpacked: Unpacked): Promise<void> },
  ): Promise<void> {
    return this.#layerLock.run(async () => done(await this.#unpack(uuid, digest, signal)));
  }

  /**
   * Includes the layers of failed loads. Removes nothing while the record of an image or a
   * container is unreadable.
   */
  removeUnusedLayers(): Promise<void> {
    return this.#layerLock.run(async () => {
      const { images, containers } = this.#deps;
      if (images.hasUnreadable || containers.hasUnreadable) return;
      const ofImages = images.list().flatMap(({ layers }) => layers.map(({ digest }) => layerNameOf(digest)));
      const needed = new Set([...ofImages, ...this.#layersOfContainers()]);
      for (const name of await readdir(this.#deps.layers))
        if (LAYER_NAME.test(name) && !needed.has(name)) await removeTree(join(this.#deps.layers, name));
    });
  }

  async removeArchive(uuid: string): Promise<void> {
    const file = this.archiveOf(uuid);
    for (const path of [file, noteOf(file), blobsOf(file)]) await rm(path, { recursive: true, force: true });
    this.space.release(uuid);
  }

  /**
   * Like `unpack`, for an image made on this server. Its layer is named after the image's uuid,
   * because there is no archive to hash.
   * @throws NoImageSpaceError
   */
  fill(
    uuid: string,
    contents: ImageContents,
    done: (layer: StoredImage['layers'][number]) => Promise<void>,
  ): Promise<void> {
    const digest = `sha256:${createHash('sha256').update(`the layer of image ${uuid}`).digest('hex')}`;
    const directory = this.layer(digest);
    return this.#layerLock.run(async () => {
      if (await this.#mayBeOfContainer(digest))
        throw new ImageBusyError(
          uuid,
          `Image ${uuid} has no record, and a container may still use it; choose another uuid`,
        );
      await removeTree(directory);
      try {
        const bytes = await contents.measure(MAX_ENTRIES);
        await this.space.reserve(uuid, bytes);
        await contents.write(directory);
        await done({ digest, bytes });
      } catch (error) {
        await removeTree(directory);
        throw error;
      } finally {
        this.space.release(uuid);
      }
    });
  }

  /** Removes everything else: the download can be continued. */
  async keepArchive(uuid: string): Promise<void> {
    const file = this.archiveOf(uuid);
    await rm(blobsOf(file), { recursive: true, force: true });
    const kept = await stat(file).catch(() => undefined);
    if (kept === undefined) this.space.release(uuid);
    else this.space.keep(uuid, kept.size);
  }

  async #unpack(uuid: string, digest: string, signal: AbortSignal): Promise<Unpacked> {
    const file = this.archiveOf(uuid);
    const blobs = blobsOf(file);
    await rm(blobs, { recursive: true, force: true });
    await mkdir(blobs, { mode: 0o700 });
    const maxBytes = await this.space.freeBytes(uuid);
    const request = { file, digest, blobs, maxBytes, maxEntries: MAX_ENTRIES, arch: process.arch, signal };
    const { layers, config } = await readImageArchive(request);
    const unpacked: StoredImage['layers'][number][] = [];
    let sum = 0;
    for (const layer of layers) {
      const before = sum;
      const onBytes = (bytes: number) => this.space.hold(uuid, before + bytes);
      const bytes = await this.#unpackLayer(layer, { maxBytes: maxBytes - before, onBytes, signal });
      onBytes(bytes);
      unpacked.push({ digest: layer.digest, bytes });
      sum += bytes;
    }
    return { layers: unpacked, config };
  }

  /** @returns its bytes, also if another image has it already */
  async #unpackLayer(
    { digest, file }: LayerArchive,
    { signal, ...sizes }: Pick<LayerLimits, 'maxBytes' | 'onBytes'> & { signal: AbortSignal },
  ): Promise<number> {
    const directory = this.layer(digest);
    const { images } = this.#deps;
    const ready = images.list().filter(({ state }) => state.name === 'ready');
    const shared = ready.flatMap(({ layers }) => layers).find((layer) => layer.digest === digest);
    if (shared !== undefined) return shared.bytes;
    const mayBeUsed = images.hasUnreadable || (await this.#mayBeOfContainer(digest));
    if (mayBeUsed && (await lstatIfAny(directory)) !== undefined) return measureTree(directory, MAX_ENTRIES);
    await removeTree(directory);
    const limits = { ...sizes, maxEntries: MAX_ENTRIES, maxNameBytes: MAX_NAME_BYTES };
    const unpacked = await this.#deps.unpack(createReadStream(file), directory, { limits, signal });
    if (unpacked.digest !== digest) {
      await removeTree(directory);
      throw new InvalidImageError(`a layer has the digest ${unpacked.digest}, not ${digest}`);
    }
    return unpacked.bytes;
  }

  /** Whether the layer may be part of a running container's root file system. */
  async #mayBeOfContainer(digest: string): Promise<boolean> {
    if (this.#layersOfContainers().has(layerNameOf(digest))) return true;
    return this.#deps.containers.hasUnreadable && (await lstatIfAny(this.layer(digest))) !== undefined;
  }

  /** The names of their directories. */
  #layersOfContainers(): Set<string> {
    const paths = this.#deps.containers.list().flatMap(({ spec }) => spec.root.layers);
    return new Set(paths.map((path) => basename(path)));
  }

  async #removeOldParts(): Promise<void> {
    const now = this.#deps.clock.wallTime();
    for (const name of await readdir(this.#incoming())) {
      const path = join(this.#incoming(), name);
      const { mtimeMs, size } = await stat(path);
      if (now - mtimeMs > KEPT_PART_MS || name.endsWith('.blobs')) await rm(path, { recursive: true, force: true });
      else if (!name.endsWith('.json')) this.space.keep(name, size);
    }
  }

  #incoming(): string {
    return join(this.#deps.directory, 'incoming');
  }
}

const blobsOf = (file: string): string => `${file}.blobs`;
