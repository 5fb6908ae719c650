/**
 * The images of this server, in DATA/images and DATA/containers/layers:
 *
 *     DATA/images/records/UUID.json       what the agent knows of each image
 *     DATA/images/incoming/UUID           its archive while it arrives, with a note beside it
 *     DATA/images/incoming/UUID.blobs/    its parts while they are unpacked
 *     DATA/containers/layers/DIGEST/      unpacked layers; images with the same layer share it
 *
 * image-lifecycle.ts says which states there are. Only one load or removal of an image happens at a
 * time, and a record is on disk before the work that it announces. Nothing that has arrived is
 * unpacked before its digest is proved.
 */
import { createReadStream } from 'node:fs';
import { rm } from 'node:fs/promises';
import { definedFields } from '../../platform/defined-fields.ts';
import { messageOf } from '../../platform/errors.ts';
import { HttpClient } from '../../platform/http-client/http-client.ts';
import { Semaphore } from '../../platform/limiting/semaphore.ts';
import { Loop } from '../../platform/time/loop.ts';
import { untilAborted } from '../../platform/time/until-aborted.ts';
import { NoContainersError } from '../containers/container-errors.ts';
import type { LookUp } from './allowed-addresses.ts';
import { type AllowedSources, allowedFile, allowedUrl, isFileUrl, shownUrl } from './allowed-sources.ts';
import { type ArchiveLimits, type Arrived, toSpaceError } from './archive-file.ts';
import { download } from './download.ts';
import { checkNames, imageConfigOf, type StoredImage } from './image.ts';
import {
  ImageBusyError,
  ImageExistsError,
  ImageInUseError,
  ImageNotFoundError,
  ImageSourceError,
  NoImageSpaceError,
} from './image-errors.ts';
import { ImageFiles, type ImageFilesDeps, type Unpacked } from './image-files.ts';
import type { ImageContents, ImageDefaults, ImageStore, VmImage } from './image-store.ts';
import { ImageTable, type ImageTableDeps } from './image-table.ts';
import { toLoadFailure } from './load-failure.ts';
import { receiveArchive } from './receive-archive.ts';

export type ImageOptions = AllowedSources & Pick<ImageFilesDeps, 'maxBytes'>;

interface ImagesDeps extends AllowedSources, ImageFilesDeps, ImageTableDeps {
  /** A sentence that says why no container can run here: then no image is loaded. */
  unavailableReason?: string | undefined;
  /** Between two attempts of a download; tests shorten it. */
  pauseMs?: number;
  /** The addresses of a host name; default: by the operating system. */
  lookUp?: LookUp | undefined;
}

interface ImageRequest {
  uuid: string;
  /** `http:`, `https:` or `file:`. */
  url: string;
  /**
   * Expected digest of the archive as it arrives. If absent, any archive from the source is
   * accepted.
   */
  digest?: string | undefined;
}

interface LoadOptions {
  signal?: AbortSignal | undefined;
  onProgress?: (bytes: number, total: number | undefined) => void;
}

/** Images that are loaded at the same time; other loads wait. */
const LOADS = 2;
/** An image is removed when no container has used it for this long. */
const UNUSED_MS = 7 * 24 * 3_600_000;
const EXPIRE_EVERY_MS = 3_600_000;
const MAX_IMAGES = 1_000;
/**
 * The source of an image that was made from a VM: it is nowhere else, so only a caller may delete
 * it.
 */
const MADE_HERE = 'vm';

export class Images implements ImageStore {
  readonly #deps: ImagesDeps;
  readonly #client: HttpClient;
  readonly #table: ImageTable;
  readonly #loading = new Map<string, { request: string; done: Promise<StoredImage> }>();
  readonly #loads = new Semaphore(LOADS);
  readonly #files: ImageFiles;
  readonly #expiring: Loop;
  readonly #stopping = new AbortController();

  constructor(deps: ImagesDeps) {
    this.#deps = deps;
    this.#table = new ImageTable(deps);
    this.#client = new HttpClient({ clock: deps.clock });
    this.#files = new ImageFiles({ ...deps, images: this.#table.records });
    const { clock, log } = deps;
    const work = () => this.removeUnused(UNUSED_MS);
    this.#expiring = new Loop({ clock, log, what: 'images: removing unused ones', work, pauseMs: EXPIRE_EVERY_MS });
  }

  /**
   * Continues removals, ends what an earlier agent was loading, and removes what no image needs.
   */
  async start(): Promise<void> {
    await this.#files.start();
    await this.#table.records.load();
    for (const { uuid, source } of this.list()) {
      const effects = await this.#table.apply(uuid, { type: 'recovered' });
      if (effects.some((effect) => effect.do === 'remove')) await this.#remove(uuid);
      else if (source === MADE_HERE && this.read(uuid).state.name === 'failed') await this.delete(uuid);
    }
    await this.#files.removeUnusedLayers();
    this.#expiring.start();
  }

  /** Ends loads; what has arrived is kept. */
  async stop(): Promise<void> {
    await this.#expiring.stop();
    this.#stopping.abort(new ImageSourceError('the agent is stopping'));
    await Promise.allSettled(Array.from(this.#loading.values(), ({ done }) => done));
    this.#client.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  list(): StoredImage[] {
    return this.#table.records.list();
  }

  /** @throws ImageNotFoundError, ImageBusyError */
  read(uuid: string): StoredImage {
    return this.#table.records.get(uuid).record;
  }

  /** Undefined unless all of it is there. @throws ImageBusyError if its record cannot be read */
  async get(uuid: string): Promise<VmImage | undefined> {
    const image = this.#table.records.find(uuid)?.record;
    if (image?.state.name !== 'ready') return undefined;
    return { layers: image.layers.map(({ digest }) => this.#files.layer(digest)), defaults: image.config };
  }

  /** @throws ImageNotFoundError unless it is ready, ImageBusyError */
  async use(uuid: string, containerId: string): Promise<void> {
    await this.#table.update(uuid, ({ state, usedBy }) => {
      if (state.name !== 'ready') throw new ImageNotFoundError(uuid);
      if (usedBy.includes(containerId)) return undefined;
      return { usedBy: [...usedBy, containerId], lastUsedAt: this.#deps.clock.wallTime() };
    });
  }

  async release(containerId: string, exceptUuid?: string): Promise<void> {
    const users = this.list().filter(({ uuid, usedBy }) => uuid !== exceptUuid && usedBy.includes(containerId));
    for (const { uuid } of users)
      await this.#table.update(uuid, ({ usedBy }) => ({
        usedBy: usedBy.filter((one) => one !== containerId),
        lastUsedAt: this.#deps.clock.wallTime(),
      }));
  }

  /**
   * Resolves when the image is ready; immediately if it is. A second call for it joins the first.
   * `signal` ends the wait, and the load goes on: others may wait for it, and the caller may come
   * again.
   * @throws ImageExistsError if its digest is another one, NoContainersError, and the errors of
   * image-errors.ts
   */
  async ensure(request: ImageRequest, options: LoadOptions = {}): Promise<StoredImage> {
    const { unavailableReason } = this.#deps;
    if (unavailableReason !== undefined && this.#table.records.find(request.uuid)?.record.state.name !== 'ready')
      throw new NoContainersError(unavailableReason);
    return this.#load(request.uuid, { ...request, source: shownUrl(request.url), options }, (file, signal) =>
      this.#fetch(request, { ...options, file, signal }),
    );
  }

  /**
   * Like `ensure`, for an archive that the caller sends. The stream is read to its end, or
   * destroyed on an error.
   */
  async importArchive(archive: AsyncIterable<Buffer>, request: Omit<ImageRequest, 'url'>): Promise<StoredImage> {
    const { uuid, digest } = request;
    return this.#load(uuid, { ...request, source: 'stream', options: {} }, async (file, signal) => {
      await rm(file, { force: true });
      return receiveArchive(archive, { file, digest, ...(await this.#archiveLimits(uuid)), signal }, this.#deps);
    });
  }

  /** @throws ImageExistsError, NoImageSpaceError */
  async add(uuid: string, config: ImageDefaults, contents: ImageContents): Promise<void> {
    checkNames(uuid);
    if (this.#table.records.find(uuid) !== undefined) throw new ImageExistsError(uuid);
    this.#checkNumber();
    await this.#makeRoom(uuid);
    await this.#table.load(this.#fresh(uuid, MADE_HERE));
    try {
      await this.#table.apply(uuid, { type: 'fetched' });
      await this.#files.fill(uuid, contents, async (layer) => {
        await this.#table.update(uuid, () => ({ config: imageConfigOf(config), layers: [layer] }));
        await this.#table.apply(uuid, { type: 'unpacked' });
      });
    } catch (error) {
      const failure = toSpaceError(error) ?? error;
      await this.#table.apply(uuid, { type: 'failed', code: 'Failed', reason: messageOf(failure) });
      await this.delete(uuid);
      throw failure;
    }
  }

  /** Removes images that no container has used for that time. */
  async removeUnused(unusedMs: number): Promise<void> {
    const before = this.#deps.clock.wallTime() - unusedMs;
    for (const { uuid, lastUsedAt } of this.#unused()) if (lastUsedAt < before) await this.#deleteUnlessNeeded(uuid);
  }

  /** @throws ImageNotFoundError, ImageInUseError, ImageBusyError */
  async delete(uuid: string): Promise<void> {
    await this.#table.apply(uuid, { type: 'remove' }, ({ usedBy: [user] }) => {
      if (user !== undefined) throw new ImageInUseError(uuid, user);
    });
    await this.#remove(uuid);
  }

  /** @throws NoImageSpaceError */
  #checkNumber(): void {
    if (this.#table.records.size >= MAX_IMAGES)
      throw new NoImageSpaceError(`This server has ${MAX_IMAGES} images, as many as it may; delete some`);
  }

  /** Somebody may begin to use it, or delete it, at the same time. */
  async #deleteUnlessNeeded(uuid: string): Promise<void> {
    await this.delete(uuid).catch((error: unknown) => {
      const isNeeded = error instanceof ImageInUseError || error instanceof ImageBusyError;
      if (!isNeeded && !(error instanceof ImageNotFoundError)) throw error;
    });
  }

  async #load(
    uuid: string,
    { source, digest, options }: { source: string; digest?: string | undefined; options: LoadOptions },
    fetch: (file: string, signal: AbortSignal) => Promise<Arrived>,
  ): Promise<StoredImage> {
    checkNames(uuid, digest);
    const request = JSON.stringify([source, digest]);
    const current = this.#loading.get(uuid);
    if (current !== undefined) {
      if (current.request !== request) throw new ImageBusyError(uuid);
      return untilAborted(current.done, options.signal);
    }
    const stored = this.#table.records.find(uuid)?.record;
    if (stored?.state.name === 'ready') {
      if (digest !== undefined && stored.digest !== digest)
        throw new ImageExistsError(uuid, 'exists already with another digest; delete it first');
      return stored;
    }
    if (stored?.state.name === 'removing') throw new ImageBusyError(uuid);
    if (stored === undefined) this.#checkNumber();
    const { signal } = this.#stopping;
    const done = this.#loads.run(() => this.#loadNow({ uuid, source, signal, fetch }));
    this.#loading.set(uuid, { request, done });
    void done.catch(() => undefined).finally(() => this.#loading.delete(uuid));
    return untilAborted(done, options.signal);
  }

  async #loadNow({
    uuid,
    source,
    signal,
    fetch,
  }: {
    uuid: string;
    source: string;
    signal: AbortSignal;
    fetch: (file: string, signal: AbortSignal) => Promise<Arrived>;
  }): Promise<StoredImage> {
    await this.#table.load(this.#fresh(uuid, source));
    const file = this.#files.archiveOf(uuid);
    try {
      const { digest } = await fetch(file, signal);
      await this.#table.apply(uuid, { type: 'fetched' });
      const done = async (unpacked: Unpacked) => {
        await this.#table.update(uuid, () => ({ digest, ...unpacked }));
        await this.#table.apply(uuid, { type: 'unpacked' });
      };
      await this.#files.unpack(uuid, { digest, signal, done });
      await this.#files.removeArchive(uuid);
      return this.read(uuid);
    } catch (error) {
      const failure = toLoadFailure(error, signal);
      // What is wrong stays wrong; a download that is not complete may be continued.
      if (failure instanceof ImageSourceError && /^https?:/.test(source)) await this.#files.keepArchive(uuid);
      else await this.#files.removeArchive(uuid);
      await this.#table.apply(uuid, { type: 'failed', code: failure.code, reason: failure.message });
      await this.#files.removeUnusedLayers();
      throw failure;
    }
  }

  #fresh(uuid: string, source: string): Omit<StoredImage, 'state'> {
    const now = this.#deps.clock.wallTime();
    return { uuid, source, layers: [], config: {}, createdAt: now, lastUsedAt: now, usedBy: [] };
  }

  async #fetch(
    { uuid, url, digest }: ImageRequest,
    { file, signal, onProgress }: { file: string; signal: AbortSignal } & LoadOptions,
  ): Promise<Arrived> {
    // Before other images are removed to make room.
    const path = isFileUrl(url) ? await allowedFile(url, this.#deps) : undefined;
    if (path === undefined) allowedUrl(url, this.#deps);
    const limits = await this.#archiveLimits(uuid);
    if (path === undefined) {
      const progress = onProgress === undefined ? {} : { onProgress };
      const { clock, pauseMs, lookUp } = this.#deps;
      const how = { client: this.#client, allowed: this.#deps, clock, lookUp, ...definedFields({ pauseMs }) };
      return download({ url, digest, file, ...limits, signal, ...progress }, how);
    }
    await rm(file, { force: true });
    const archive = createReadStream(path);
    return receiveArchive(archive, { file, digest, ...limits, signal }, this.#deps);
  }

  async #archiveLimits(uuid: string): Promise<ArchiveLimits> {
    const maxBytes = await this.#makeRoom(uuid);
    return { maxBytes, onBytes: (bytes) => this.#files.space.hold(uuid, bytes) };
  }

  /**
   * Removes images that are unused for longest until a tenth is free.
   * @returns the bytes that this image may have
   */
  async #makeRoom(uuid: string): Promise<number> {
    const { space } = this.#files;
    for (const unused of this.#unused()) {
      if ((await space.freeBytes(uuid)) >= this.#deps.maxBytes / 10) break;
      this.#deps.log.info({ image: unused.uuid }, 'images: an unused image is removed to make room');
      await this.#deleteUnlessNeeded(unused.uuid);
    }
    const free = await space.freeBytes(uuid);
    if (free > 0) return free;
    throw new NoImageSpaceError(
      `Images have no room: they may use ${this.#deps.maxBytes} bytes (--image-space) and not all of the disk; delete VMs or images that are not needed`,
    );
  }

  /** Images that no container uses and that can be loaded again, the longest unused first. */
  #unused(): StoredImage[] {
    const isIdle = ({ state, source, usedBy }: StoredImage) =>
      ['ready', 'failed'].includes(state.name) && source !== MADE_HERE && usedBy.length === 0;
    const unused = this.list().filter(isIdle);
    return unused.sort((one, other) => one.lastUsedAt - other.lastUsedAt);
  }

  async #remove(uuid: string): Promise<void> {
    await this.#files.removeArchive(uuid);
    await this.#table.apply(uuid, { type: 'removed' });
    await this.#files.removeUnusedLayers();
  }
}
