/**
 * Where a copy from a server arrives: a new directory that only its owner may enter, in the directory
 * where the copy will be, and so on the same file system. It is renamed into place when all of it has
 * arrived. No symbolic link below the target is followed then: each directory is opened, and what is
 * in it is named through its descriptor, where the system has such names.
 */
import { constants } from 'node:fs';
import {
  chmod,
  type FileHandle,
  lstat,
  mkdir,
  mkdtemp,
  open,
  readdir,
  rename,
  rm,
  rmdir,
  stat,
} from 'node:fs/promises';
import path from 'node:path';
import { RefusedError } from '../terminal/usage-error.ts';

/** What a copy makes: a file of this name, if the target is a directory; or a directory. */
type CopiedKind = { kind: 'file'; name: string } | { kind: 'tree' };

const NEW = 'new';

export class Staging {
  /** Where the file or the directory is to be written. The directory exists, the file does not. */
  readonly place: string;
  readonly #base: string;
  readonly #directory: string;
  readonly #opened: OpenDirectory;

  private constructor(
    base: string,
    { directory, opened, place }: { directory: string; opened: OpenDirectory; place: string },
  ) {
    this.#base = base;
    this.#directory = directory;
    this.#opened = opened;
    this.place = place;
  }

  /** @throws RefusedError if the target is something else */
  static async open(target: string, arrival: CopiedKind): Promise<Staging> {
    const { base, missing } = await placeOf(target, arrival);
    const directory = await mkdtemp(path.join(base, '.cnapi-cp-'));
    // Whoever owns the target's directory could put another one in its place.
    const opened = await OpenDirectory.open(directory, { follow: false });
    const staging = new Staging(base, { directory, opened, place: path.join(opened.at(NEW), ...missing) });
    const { uid, mode } = await stat(opened.at('.'));
    if (uid !== process.getuid?.() || (mode & 0o077) !== 0) throw new RefusedError(`${directory} has changed`);
    await mkdir(arrival.kind === 'tree' ? staging.place : path.dirname(staging.place), { recursive: true });
    return staging;
  }

  /** Renames what has arrived into the target. @throws RefusedError if it does not fit there; then nothing has changed */
  async settle(): Promise<void> {
    const { dev } = await stat(this.#opened.at('.'));
    for (const step of ['check', 'move'] as const) {
      await using base = await OpenDirectory.open(this.#base, { follow: true });
      await merge(this.#opened.at(NEW), base, { step, shown: this.#base, dev });
    }
  }

  /** Removes what has not been renamed. */
  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.#opened.at(NEW), { recursive: true, force: true });
    await this.#opened[Symbol.asyncDispose]();
    await rmdir(this.#directory);
  }
}

/** The directory that is there, and the names below it that are to be made. */
async function placeOf(target: string, arrival: CopiedKind): Promise<{ base: string; missing: string[] }> {
  const isNamed = arrival.kind === 'file' && !/\/$/.test(target);
  const missing: string[] = [];
  for (let base = path.resolve(target); ; base = path.dirname(base)) {
    const about = await stat(base).catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return undefined;
      throw error;
    });
    if (about?.isDirectory()) {
      if (isNamed && missing.length > 1) throw new RefusedError(`there is no directory ${path.dirname(target)}`);
      if (arrival.kind === 'file' && (missing.length === 0 || !isNamed)) missing.push(arrival.name);
      return { base, missing };
    }
    if (about !== undefined && !(isNamed && missing.length === 0)) throw new RefusedError(`${base} is not a directory`);
    missing.unshift(path.basename(base));
  }
}

interface Merge {
  step: 'check' | 'move';
  /** The path of the target, for messages. */
  shown: string;
  /** The device of what has arrived. */
  dev: number;
}

async function merge(from: string, to: OpenDirectory, { step, shown, dev }: Merge): Promise<void> {
  for (const entry of await readdir(from, { withFileTypes: true })) {
    const { name } = entry;
    const source = path.join(from, name);
    const there = await lstat(to.at(name)).catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return undefined;
      throw error;
    });
    const place = path.join(shown, name);
    if (there?.isDirectory() && !entry.isDirectory())
      throw new RefusedError(`${place} is a directory; nothing was changed`);
    if (!entry.isDirectory() || there === undefined) {
      if (step === 'move') await moveTo(to.at(name), source);
      continue;
    }
    if (!there.isDirectory()) throw new RefusedError(`${place} is not a directory; nothing was changed`);
    if (there.dev !== dev)
      throw new RefusedError(`${place} is on another file system; copy into it by itself. Nothing was changed`);
    await using sub = await OpenDirectory.open(to.at(name), { follow: false });
    await merge(source, sub, { step, shown: place, dev });
    if (step === 'move') await rmdir(source);
  }
}

/** A directory that its owner may not write cannot be renamed into another one, except by root. */
async function moveTo(target: string, source: string): Promise<void> {
  try {
    await rename(source, target);
  } catch (error) {
    const { mode } = await lstat(source);
    if ((error as NodeJS.ErrnoException).code !== 'EACCES' || (mode & constants.S_IFMT) !== constants.S_IFDIR)
      throw error;
    await chmod(source, mode | 0o700);
    await rename(source, target);
    await chmod(target, mode);
  }
}

class OpenDirectory {
  readonly #handle: FileHandle;
  readonly #path: string;

  private constructor(handle: FileHandle, place: string) {
    this.#handle = handle;
    this.#path = place;
  }

  static async open(place: string, { follow }: { follow: boolean }): Promise<OpenDirectory> {
    const { O_RDONLY, O_DIRECTORY, O_NOFOLLOW } = constants;
    const handle = await open(place, O_RDONLY | O_DIRECTORY | (follow ? 0 : O_NOFOLLOW));
    return new OpenDirectory(handle, process.platform === 'linux' ? `/proc/self/fd/${handle.fd}` : place);
  }

  at(name: string): string {
    return `${this.#path}/${name}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#handle.close();
  }
}
