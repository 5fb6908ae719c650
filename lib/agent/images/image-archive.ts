/**
 * Finds out what an archive that has arrived is, and takes an OCI image layout apart. What its
 * entries are called never becomes a path: blobs are kept under their digests, which are computed
 * here.
 *
 * An archive with a file `oci-layout` is an image layout, as `skopeo copy … oci-archive:FILE`,
 * `buildah push` and `docker save` (25 or newer) write it. Any other one is taken as a plain root
 * file system, so it is one layer.
 */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { open, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { type ArchiveEntry, readArchive } from '../containers/layers/archive.ts';
import { LayerError } from '../containers/layers/layer-error.ts';
import { LayerSource } from '../containers/layers/layer-source.ts';
import { DIGEST, type ImageConfig, layerNameOf } from './image.ts';
import { InvalidImageError } from './image-errors.ts';
import { chooseManifest, type Descriptor, parseImageConfig, parseIndex, parseManifest } from './oci-documents.ts';

export interface LayerArchive {
  digest: string;
  /** tar, plain or gzip. */
  file: string;
}

interface ArchiveContents {
  /** The lowest first. */
  layers: LayerArchive[];
  config: ImageConfig;
}

interface ArchiveRequest {
  file: string;
  /** Digest of the file. */
  digest: string;
  /** An empty directory for blobs. */
  blobs: string;
  /** Size limit of the decompressed archive. */
  maxBytes: number;
  maxEntries: number;
  /** The architecture, with the name that `process.arch` has for it. */
  arch: string;
  signal?: AbortSignal | undefined;
}

const BLOB = /^(?:\.\/)?blobs\/sha256\/([0-9a-f]{64})$/;
const LAYOUT = /^(?:\.\/)?oci-layout$/;
const INDEX = /^(?:\.\/)?index\.json$/;
const MAX_DOCUMENT_BYTES = 4 * 1024 * 1024;
/** An index may name others, for example one for signatures. */
const MAX_INDEX_DEPTH = 3;

/** @throws InvalidImageError */
export async function readImageArchive(request: ArchiveRequest): Promise<ArchiveContents> {
  const { file, digest } = request;
  if (!(await isLayout(request))) return { layers: [{ digest, file }], config: {} };
  return new Layout(request, await extract(request)).contents();
}

async function isLayout(request: ArchiveRequest): Promise<boolean> {
  for await (const { kind, path } of entriesOf(request)) if (kind === 'file' && LAYOUT.test(path)) return true;
  return false;
}

/** Writes the blobs of a layout. @returns its index.json */
async function extract(request: ArchiveRequest): Promise<Buffer> {
  let index: Buffer | undefined;
  for await (const entry of entriesOf(request)) {
    if (entry.kind === 'directory') continue;
    if (entry.kind !== 'file') throw new InvalidImageError(`${shown(entry.path)} of the layout is not a file`);
    const digest = BLOB.exec(entry.path)?.[1];
    if (digest !== undefined) await writeBlob(entry, join(request.blobs, digest), digest);
    else if (INDEX.test(entry.path)) index = await smallBody(entry);
  }
  if (index === undefined) throw new InvalidImageError('the layout has no index.json');
  return index;
}

async function* entriesOf({ file, maxBytes, maxEntries, signal }: ArchiveRequest): AsyncGenerator<ArchiveEntry, void> {
  const source = new LayerSource(createReadStream(file, { signal: signal ?? null }), { maxBytes });
  let count = 0;
  try {
    for await (const entry of readArchive(source.bytes())) {
      count += 1;
      if (count > maxEntries) throw new InvalidImageError(`it has more than ${maxEntries} entries`);
      yield entry;
    }
  } catch (error) {
    throw error instanceof LayerError ? new InvalidImageError(error.message, error) : error;
  }
}

async function writeBlob({ body }: ArchiveEntry, path: string, name: string): Promise<void> {
  const hash = createHash('sha256');
  // A second entry of the same name is refused by the flag.
  const file = await open(path, 'wx', 0o600).catch((error: NodeJS.ErrnoException) => {
    throw error.code === 'EEXIST' ? new InvalidImageError(`the blob ${name} is there twice`, error) : error;
  });
  try {
    for await (const piece of body) {
      hash.update(piece);
      await file.writeFile(piece);
    }
    // Some disks tell only here that they are full.
    await file.datasync();
  } finally {
    await file.close();
  }
  const computed = hash.digest('hex');
  if (computed !== name) throw new InvalidImageError(`the blob ${name} has the digest ${computed}`);
}

async function smallBody({ body, size, path }: ArchiveEntry): Promise<Buffer> {
  if (size > MAX_DOCUMENT_BYTES)
    throw new InvalidImageError(`${shown(path)} has more than ${MAX_DOCUMENT_BYTES} bytes`);
  return Buffer.concat(await Array.fromAsync(body));
}

/** The blobs of a layout, and what they mean. */
class Layout {
  readonly #request: ArchiveRequest;
  readonly #index: Buffer;

  constructor(request: ArchiveRequest, index: Buffer) {
    this.#request = request;
    this.#index = index;
  }

  async contents(): Promise<ArchiveContents> {
    const { arch } = this.#request;
    const manifest = parseManifest(await this.#document(await this.#manifest()), 'its manifest');
    const config = parseImageConfig(await this.#document(manifest.config), { arch, layers: manifest.layers.length });
    const layers: LayerArchive[] = [];
    for (const layer of manifest.layers) layers.push({ digest: layer.digest, file: await this.#blob(layer) });
    return { layers, config };
  }

  async #manifest(): Promise<Descriptor> {
    let index = parseIndex(this.#index, 'index.json');
    for (let depth = 1; depth <= MAX_INDEX_DEPTH; depth++) {
      const { descriptor, isIndex } = chooseManifest(index, this.#request.arch);
      if (!isIndex) return descriptor;
      index = parseIndex(await this.#document(descriptor), 'an index');
    }
    throw new InvalidImageError(`its indexes name each other more than ${MAX_INDEX_DEPTH} times`);
  }

  async #document(descriptor: Descriptor): Promise<Buffer> {
    if (descriptor.size > MAX_DOCUMENT_BYTES)
      throw new InvalidImageError(
        `${descriptor.digest} has more than ${MAX_DOCUMENT_BYTES} bytes, which no document has`,
      );
    return readFile(await this.#blob(descriptor));
  }

  /** Reads a stored blob, whose digest was checked when it was written. */
  async #blob({ digest, size }: Descriptor): Promise<string> {
    if (!DIGEST.test(digest)) throw new InvalidImageError(`${shown(digest)} is not a digest`);
    const path = join(this.#request.blobs, layerNameOf(digest));
    const found = await stat(path).catch(() => undefined);
    if (found === undefined) throw new InvalidImageError(`the blob ${digest} is missing`);
    if (found.size !== size) throw new InvalidImageError(`the blob ${digest} has ${found.size} bytes, not ${size}`);
    return path;
  }
}

const shown = (text: string): string => JSON.stringify(text.slice(0, 100));
