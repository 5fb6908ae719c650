/**
 * Writes the entries of one layer to disk, below a directory that nobody else writes to. Owners are
 * shifted by `firstId`. Directories get their owners, modes and times at the end, because entries
 * change the times.
 */
import { constants } from 'node:fs';
import { chmod, chown, lchown, link, lutimes, mkdir, open, symlink, unlink, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import type { ArchiveEntry, EntryHeader } from './archive.ts';
import { LayerError } from './layer-error.ts';
import { type LayerRules, type LayerStep, LayerTree } from './layer-tree.ts';
import { markForOverlay, type Whiteouts } from './whiteouts.ts';
import { WriteQueue } from './write-queue.ts';

type Properties = Pick<EntryHeader, 'mode' | 'uid' | 'gid' | 'mtime'>;

interface LayerWriterDeps {
  root: string;
  /** Id of the machine for id 0 of the layer. */
  firstId: number;
  rules: LayerRules;
}

const { O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW } = constants;
const NEW_FILE = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW;
/** The properties of directories that the archive does not name. */
const UNNAMED: Properties = { mode: 0o755, uid: 0, gid: 0, mtime: 0 };
const MAX_TIME = 2 ** 33;
/** Pieces in which large files are written; smaller files are written beside each other. */
const PIECE_BYTES = 512 * 1024;
/** Node has four threads for files, and others of the agent's wait for them too. */
const CONCURRENT_WRITES = 4;

export class LayerWriter {
  readonly #deps: LayerWriterDeps;
  readonly #tree: LayerTree;
  readonly #directories = new Map<string, Properties>([['', UNNAMED]]);
  readonly #removed = new Set<string>();
  readonly #opaque = new Set<string>();
  readonly #queue = new WriteQueue(CONCURRENT_WRITES);

  constructor(deps: LayerWriterDeps) {
    this.#deps = deps;
    this.#tree = new LayerTree(deps.rules);
  }

  /** @throws LayerError, or an error of the file system */
  async add(entry: ArchiveEntry): Promise<void> {
    const { parents, action } = this.#tree.add(entry);
    for (const parent of parents) await this.#makeDirectory(parent, UNNAMED);
    await this.#perform(action, entry);
  }

  /** Sets the properties of directories. @returns what the layer hides of those below it */
  async finish({ isForOverlay }: { isForOverlay: boolean }): Promise<Whiteouts> {
    await this.#queue.drain();
    const whiteouts = this.#whiteouts();
    // An opaque root needs no attribute: the layers below it are not mounted.
    const opaque = whiteouts.opaque.filter((path) => path !== '');
    if (isForOverlay) await markForOverlay(this.#deps.root, { ...whiteouts, opaque });
    for (const [path, properties] of this.#directories)
      await this.#queue.add(() => this.#setProperties(this.#pathOf(path), properties));
    await this.#queue.drain();
    return whiteouts;
  }

  /** Resolves when all writes have ended. */
  settle(): Promise<void> {
    return this.#queue.settle();
  }

  async #perform(action: LayerStep['action'], entry: ArchiveEntry): Promise<void> {
    if ('isReplaced' in action && action.isReplaced) {
      await this.#queue.drain();
      await unlink(this.#pathOf(action.path));
    }
    switch (action.do) {
      case 'directory':
        return this.#makeDirectory(action.path, entry);
      case 'file':
        return this.#addFile(action.path, entry);
      case 'symbolic-link':
        return this.#queue.add(() => this.#makeLink(action, entry));
      case 'hard-link':
        await this.#queue.drain();
        return link(this.#pathOf(action.target), this.#pathOf(action.path));
      case 'white-out':
        return void this.#removed.add(action.path);
      case 'make-opaque':
        return void this.#opaque.add(action.path);
      case 'skip':
        return;
      default:
        return action satisfies never;
    }
  }

  async #makeDirectory(path: string, properties: Properties): Promise<void> {
    if (!this.#directories.has(path)) await mkdir(this.#pathOf(path), 0o700);
    const { mode, uid, gid, mtime } = properties;
    this.#directories.set(path, { mode, uid, gid, mtime });
  }

  async #addFile(path: string, entry: ArchiveEntry): Promise<void> {
    if (entry.size > PIECE_BYTES) return this.#writeFile(path, entry, inPieces(entry.body));
    const pieces = await Array.fromAsync(inPieces(entry.body));
    await this.#queue.add(() => this.#writeFile(path, entry, pieces));
  }

  async #writeFile(path: string, entry: EntryHeader, pieces: Iterable<Buffer> | AsyncIterable<Buffer>): Promise<void> {
    const file = await open(this.#pathOf(path), NEW_FILE, 0o600);
    try {
      for await (const piece of pieces) await file.writeFile(piece);
      await file.chown(entry.uid + this.#deps.firstId, entry.gid + this.#deps.firstId);
      // After the owner: a new owner loses set-user-id bits.
      await file.chmod(entry.mode);
      await file.utimes(timeOf(entry), timeOf(entry));
    } finally {
      await file.close();
    }
  }

  async #makeLink({ path, target }: { path: string; target: string }, entry: EntryHeader): Promise<void> {
    const link = this.#pathOf(path);
    await symlink(target, link);
    await lchown(link, entry.uid + this.#deps.firstId, entry.gid + this.#deps.firstId);
    await lutimes(link, timeOf(entry), timeOf(entry));
  }

  async #setProperties(path: string, properties: Properties): Promise<void> {
    const { firstId } = this.#deps;
    await chown(path, properties.uid + firstId, properties.gid + firstId);
    await chmod(path, properties.mode);
    await utimes(path, timeOf(properties), timeOf(properties));
  }

  /**
   * If the layer recreates a removed name, it is not removed. A recreated directory becomes opaque.
   */
  #whiteouts(): Whiteouts {
    for (const path of this.#removed) {
      if (this.#tree.isDirectory(path)) this.#opaque.add(path);
      if (this.#tree.has(path)) this.#removed.delete(path);
    }
    return { removed: [...this.#removed], opaque: [...this.#opaque] };
  }

  #pathOf(path: string): string {
    return join(this.#deps.root, path);
  }
}

/** Joins pieces to larger ones, which take fewer calls of the file system. */
async function* inPieces(body: AsyncIterable<Buffer>): AsyncGenerator<Buffer, void> {
  let pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of body) {
    pieces.push(piece);
    bytes += piece.length;
    if (bytes < PIECE_BYTES) continue;
    yield Buffer.concat(pieces);
    pieces = [];
    bytes = 0;
  }
  if (bytes > 0) yield Buffer.concat(pieces);
}

/** Replaces times that file systems cannot hold by the epoch. */
const timeOf = ({ mtime }: Properties): number => (mtime >= 0 && mtime < MAX_TIME ? mtime : 0);

/** The file system refuses what an archive asks for, although the rules allow it. */
export function refusalOfFile(error: unknown): LayerError | undefined {
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  const isOfArchive = code === 'ENAMETOOLONG' || code === 'EMLINK' || code === 'EILSEQ';
  return isOfArchive
    ? new LayerError('a path is too long for this file system, or a file has too many links', error)
    : undefined;
}
