/**
 * Where a copy from a server arrives: a new directory that only its owner may enter, in the
 * directory where the copy will be, and so on the same file system. It is renamed into place when
 * all of it has arrived. The directory where the copy will be is opened once, before, and stays the
 * same however long the copy takes. No symbolic link below it is followed.
 */
import { constants } from 'node:fs';
import { chmod, lstat, mkdir, mkdtemp, open, readdir, rename, rm, rmdir } from 'node:fs/promises';
import path from 'node:path';
import { RefusedError } from '../terminal/command-errors.ts';
import type { OpenDirectory } from './open-directory.ts';
import { resolveTarget } from './resolved-target.ts';

/** What a copy makes: a file of this name, if the target is a directory; or a directory. */
type CopiedKind = { kind: 'file'; name: string } | { kind: 'tree' };

const NEW = 'new';

export class Staging {
  /** Where the file or the directory is to be written. The directory exists, the file does not. */
  readonly place: string;
  readonly #base: OpenDirectory;
  readonly #directory: OpenDirectory;
  readonly #opened: AsyncDisposableStack;

  private constructor(
    opened: AsyncDisposableStack,
    { base, directory, place }: { base: OpenDirectory; directory: OpenDirectory; place: string },
  ) {
    this.#opened = opened;
    this.#base = base;
    this.#directory = directory;
    this.place = place;
  }

  /** @throws RefusedError if the target is something else, or another user may change its path */
  static async open(target: string, arrival: CopiedKind): Promise<Staging> {
    await using opened = new AsyncDisposableStack();
    const { base, ...resolved } = await resolveTarget(target);

    opened.use(base);
    const missing = namesBelow(base, resolved, { target, arrival });
    const name = path.basename(await mkdtemp(base.at('.cnapi-cp-')));
    // The owner of the target's directory could move the target, or replace it.
    opened.defer(() => rmdir(base.at(name)).catch(() => undefined));
    const directory = opened.use(await base.enter(name));
    const { uid, mode } = await directory.about();
    if (uid !== process.geteuid?.() || (mode & 0o077) !== 0) throw new RefusedError(`${directory.shown} has changed`);
    opened.defer(() => rm(directory.at(NEW), { recursive: true, force: true }));
    const place = path.join(directory.at(NEW), ...missing);
    await mkdir(arrival.kind === 'tree' ? place : path.dirname(place), { recursive: true });
    return new Staging(opened.move(), { base, directory, place });
  }

  /**
   * Renames what has arrived into the target. @throws RefusedError if it does not fit there; then
   * nothing has changed
   */
  async settle(): Promise<void> {
    const mount = await this.#directory.mount();
    for (const step of ['check', 'move'] as const) await merge(this.#directory.at(NEW), this.#base, { step, mount });
  }

  /** Removes what has not been renamed. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#opened.disposeAsync();
  }
}

/** The names below the directory that is there, which are to be made. */
function namesBelow(
  base: OpenDirectory,
  { missing, isTaken }: { missing: readonly string[]; isTaken: boolean },
  { target, arrival }: { target: string; arrival: CopiedKind },
): readonly string[] {
  const isNamed = arrival.kind === 'file' && !/\/$/.test(target);
  const [first = ''] = missing;
  if (isTaken && !(isNamed && missing.length === 1))
    throw new RefusedError(`${path.join(base.shown, first)} is not a directory`);
  if (isNamed && missing.length > 1) throw new RefusedError(`there is no directory ${path.dirname(target)}`);
  return arrival.kind === 'file' && (missing.length === 0 || !isNamed) ? [...missing, arrival.name] : missing;
}

interface Merge {
  step: 'check' | 'move';
  /** Where what has arrived is. */
  mount: string;
}

async function merge(from: string, to: OpenDirectory, { step, mount }: Merge): Promise<void> {
  for (const entry of await readdir(from, { withFileTypes: true })) {
    const { name } = entry;
    const source = path.join(from, name);
    const there = await to.kindOf(name);
    const shown = path.join(to.shown, name);
    if (there === 'directory' && !entry.isDirectory())
      throw new RefusedError(`${shown} is a directory; nothing was changed`);
    if (!entry.isDirectory() || there === 'nothing') {
      if (step === 'move') await moveTo(to.at(name), source);
      continue;
    }
    if (there !== 'directory') throw new RefusedError(`${shown} is not a directory; nothing was changed`);
    await using sub = await to.enter(name);
    if ((await sub.mount()) !== mount)
      throw new RefusedError(`${shown} is on another file system; copy into it by itself. Nothing was changed`);
    await merge(source, sub, { step, mount });
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
    const directory = await open(source, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW);
    try {
      await rename(source, target);
      // chmod by path could change another file, because the target may belong to another user.
      await directory.chmod(mode);
    } finally {
      await directory.close();
    }
  }
}
