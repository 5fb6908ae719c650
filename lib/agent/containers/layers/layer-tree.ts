/**
 * Decides what each entry of a layer's archive does, and refuses what could leave the root of the
 * layer. The tree knows all names that the archive has made. Nobody else writes below the root, so
 * a directory of the tree is a real directory on disk, and nothing is written through a link.
 */
import { posix } from 'node:path';
import type { EntryHeader } from './archive.ts';
import { LayerError } from './layer-error.ts';

export interface LayerLimits {
  /** Bytes of the unpacked archive. */
  maxBytes: number;
  /** Called with all unpacked bytes so far, before they are written; throws to refuse them. */
  onBytes?: ((bytes: number) => void) | undefined;
  /** Entries, with the directories that the archive does not name. */
  maxEntries: number;
  /** Bytes of all paths together, because they are held in memory. */
  maxNameBytes: number;
}

export interface LayerRules {
  limits: LayerLimits;
  /** User and group ids in the archive are less than this. */
  ids: number;
}

/** Paths are relative to the root, normalized; the root is ''. */
type LayerAction =
  | { do: 'directory'; path: string }
  | { do: 'file'; path: string; isReplaced: boolean }
  | { do: 'symbolic-link'; path: string; isReplaced: boolean; target: string }
  | { do: 'hard-link'; path: string; isReplaced: boolean; target: string }
  /** The layers below show nothing at this path. */
  | { do: 'white-out'; path: string }
  /** The layers below show nothing inside this directory. */
  | { do: 'make-opaque'; path: string }
  | { do: 'skip' };

export interface LayerStep {
  /** Directories that must be made first, in order; the archive has not named them. */
  parents: string[];
  action: LayerAction;
}

const MAX_PATH_BYTES = 4096;
const MAX_NAME_BYTES = 255;
const WHITEOUT = '.wh.';
const WHITEOUT_OPAQUE = '.wh..wh..opq';
/** AUFS, which defined this form, uses other such names for its own records. */
const WHITEOUT_META = '.wh..wh.';

export class LayerTree {
  readonly #rules: LayerRules;
  readonly #nodes = new Map<string, 'directory' | 'other'>([['', 'directory']]);
  #nameBytes = 0;
  #entries = 0;

  constructor(rules: LayerRules) {
    this.#rules = rules;
  }

  has(path: string): boolean {
    return this.#nodes.has(path);
  }

  isDirectory(path: string): boolean {
    return this.#nodes.get(path) === 'directory';
  }

  /** @throws LayerError */
  add(entry: EntryHeader): LayerStep {
    this.#count(entry.path);
    const path = normalize(entry.path);
    const name = posix.basename(path);
    if (name.startsWith(WHITEOUT)) return this.#addWhiteout(path, name);
    this.#checkOwner(entry, path);
    const parents = this.#makeParents(path);
    return { parents, action: this.#place(entry, path) };
  }

  #place(entry: EntryHeader, path: string): LayerAction {
    switch (entry.kind) {
      case 'directory':
        if (this.#nodes.get(path) === 'other') throw new LayerError(`${path} is a directory and something else`);
        this.#nodes.set(path, 'directory');
        return { do: 'directory', path };
      case 'file':
        return { do: 'file', path, isReplaced: this.#setOther(path) };
      case 'symbolic-link': {
        const { target } = entry;
        checkSymbolicLink(path, target);
        return { do: 'symbolic-link', path, target, isReplaced: this.#setOther(path) };
      }
      case 'hard-link': {
        const target = this.#hardLinkTarget(path, entry.target);
        return { do: 'hard-link', path, target, isReplaced: this.#setOther(path) };
      }
      case 'device':
        throw new LayerError(`${path} is a device file; build the image without it`);
      case 'fifo':
        throw new LayerError(`${path} is a FIFO; build the image without it`);
      default:
        return entry.kind satisfies never;
    }
  }

  #addWhiteout(path: string, name: string): LayerStep {
    const directory = parentOf(path);
    const parents = this.#makeParents(path);
    if (name === WHITEOUT_OPAQUE) return { parents, action: { do: 'make-opaque', path: directory } };
    if (name.startsWith(WHITEOUT_META)) return { parents, action: { do: 'skip' } };
    const hidden = name.slice(WHITEOUT.length);
    if (['', '.', '..'].includes(hidden)) throw new LayerError(`${path} is not a valid whiteout`);
    return { parents, action: { do: 'white-out', path: posix.join(directory, hidden) } };
  }

  #makeParents(path: string): string[] {
    const missing: string[] = [];
    for (let parent = parentOf(path); !this.isDirectory(parent); parent = parentOf(parent)) {
      if (this.has(parent)) throw new LayerError(`${path} lies in ${parent}, which is not a directory`);
      missing.unshift(parent);
    }
    for (const parent of missing) {
      if (posix.basename(parent).startsWith(WHITEOUT)) throw new LayerError(`${parent} is not a valid directory name`);
      this.#count(parent);
      this.#nodes.set(parent, 'directory');
    }
    return missing;
  }

  /** @returns whether there was something else than a directory with this name */
  #setOther(path: string): boolean {
    const before = this.#nodes.get(path);
    if (before === 'directory') throw new LayerError(`${path || 'the root'} is a directory and something else`);
    this.#nodes.set(path, 'other');
    return before !== undefined;
  }

  #hardLinkTarget(path: string, text: string): string {
    const target = normalize(text);
    const isFound = target !== path && this.#nodes.get(target) === 'other';
    if (!isFound)
      throw new LayerError(`${path} is a hard link to ${text}, which is not an earlier file of this archive`);
    return target;
  }

  #checkOwner({ uid, gid }: EntryHeader, path: string): void {
    const isInside = [uid, gid].every((id) => Number.isInteger(id) && id >= 0 && id < this.#rules.ids);
    if (isInside) return;
    throw new LayerError(`${path} belongs to ${uid}:${gid}; user and group ids are less than ${this.#rules.ids} here`);
  }

  #count(path: string): void {
    const { maxEntries, maxNameBytes } = this.#rules.limits;
    this.#entries += 1;
    this.#nameBytes += Buffer.byteLength(path);
    if (this.#entries > maxEntries) throw new LayerError(`it has more than ${maxEntries} entries`);
    if (this.#nameBytes > maxNameBytes) throw new LayerError(`its names have more than ${maxNameBytes} bytes together`);
  }
}

function parentOf(path: string): string {
  const end = path.lastIndexOf('/');
  return end < 0 ? '' : path.slice(0, end);
}

/** Removes `.` and double slashes. @throws LayerError if the path leaves the root */
function normalize(path: string): string {
  const shown = path.slice(0, MAX_NAME_BYTES);
  if (path === '') throw new LayerError('an entry has no name');
  if (path.startsWith('/')) throw new LayerError(`${shown} is an absolute path`);
  if (Buffer.byteLength(path) > MAX_PATH_BYTES)
    throw new LayerError(`the path ${shown}… has more than ${MAX_PATH_BYTES} bytes`);
  const names = path.split('/').filter((name) => name !== '' && name !== '.');
  for (const name of names) {
    if (name === '..') throw new LayerError(`${shown} has a ".."`);
    if (name.includes('\0')) throw new LayerError(`${shown} holds a NUL character`);
    if (Buffer.byteLength(name) > MAX_NAME_BYTES)
      throw new LayerError(`the name ${name.slice(0, MAX_NAME_BYTES)}… has more than ${MAX_NAME_BYTES} bytes`);
  }
  return names.join('/');
}

/** An absolute target is usual: inside a container it begins at the root of the container. */
function checkSymbolicLink(path: string, target: string): void {
  const bytes = Buffer.byteLength(target);
  if (bytes === 0 || bytes >= MAX_PATH_BYTES || target.includes('\0'))
    throw new LayerError(`the link ${path} has an invalid target`);
  if (target.startsWith('/')) return;
  if (leavesRoot(target, depthOf(parentOf(path)))) throw new LayerError(`the link ${path} leaves the root (${target})`);
}

const depthOf = (path: string): number => (path === '' ? 0 : path.split('/').length);

function leavesRoot(target: string, depth: number): boolean {
  let left = depth;
  for (const name of target.split('/')) {
    if (name === '..') left -= 1;
    else if (name !== '' && name !== '.') left += 1;
    if (left < 0) return true;
  }
  return false;
}
