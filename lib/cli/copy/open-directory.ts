/**
 * Directories of this machine that other users may rename, or replace by links. Each is opened
 * without following a link, and what it has is named through its descriptor. So it stays the same
 * directory until it is closed.
 *
 * Only Linux has such names. Elsewhere things are named by their paths, and a directory is refused
 * if anybody but root and this user can put another one in its place.
 */
import { constants, existsSync, type Stats } from 'node:fs';
import { type FileHandle, lstat, open, readFile, readlink, stat } from 'node:fs/promises';
import path from 'node:path';
import { RefusedError } from '../terminal/command-errors.ts';

type EntryKind = 'nothing' | 'directory' | 'link' | 'other';

const DESCRIPTORS = '/proc/self/fd';
const hasNames = process.platform === 'linux' && existsSync(DESCRIPTORS);
/**
 * Linux: to name what is in a directory takes no right to read it. Node.js does not have this
 * constant.
 */
const O_PATH = 0o10000000;

export class OpenDirectory {
  /** The path of the directory, without links, when it was opened. */
  readonly shown: string;
  /** Whether nobody but root and this user can change what the names of its path lead to. */
  readonly #isFixed: boolean;
  readonly #handle: FileHandle | undefined;

  private constructor(shown: string, { isFixed, handle }: { isFixed: boolean; handle: FileHandle | undefined }) {
    this.shown = shown;
    this.#isFixed = isFixed;
    this.#handle = handle;
  }

  static async root(): Promise<OpenDirectory> {
    return new OpenDirectory('/', { isFixed: true, handle: await opened('/') });
  }

  /**
   * Opens a directory in it. @throws RefusedError if others can replace it, where nothing else
   * helps
   */
  async enter(name: string): Promise<OpenDirectory> {
    const [shown, handle] = [path.join(this.shown, name), await opened(this.at(name))];
    const isFixed = this.#isFixed && isHeld(await this.about(), await (handle?.stat() ?? lstat(shown)));
    if (!hasNames && !isFixed)
      throw new RefusedError(`${shown}: another user may change ${this.shown}, which is not safe on this system`);
    return new OpenDirectory(shown, { isFixed, handle });
  }

  /** The path for a system call. */
  at(name: string): string {
    return this.#handle === undefined ? path.join(this.shown, name) : `${DESCRIPTORS}/${this.#handle.fd}/${name}`;
  }

  about(): Promise<Stats> {
    return this.#handle?.stat() ?? lstat(this.shown);
  }

  /**
   * Identifies the mount: a rename between two directories needs the same one, not only the same
   * device.
   */
  async mount(): Promise<string> {
    const facts = this.#handle && (await readFile(`/proc/self/fdinfo/${this.#handle.fd}`, 'utf8'));
    return `${(await this.about()).dev} ${/^mnt_id:.*$/m.exec(facts ?? '')?.[0]}`;
  }

  async kindOf(name: string): Promise<EntryKind> {
    const entry = await lstat(this.at(name)).catch(none);
    if (entry === undefined) return 'nothing';
    if (entry.isDirectory()) return 'directory';
    return entry.isSymbolicLink() ? 'link' : 'other';
  }

  async leadsToDirectory(link: string): Promise<boolean> {
    return (await stat(this.at(link)).catch(none))?.isDirectory() ?? false;
  }

  /**
   * What a link in it leads to. @throws RefusedError unless nobody but root and this user can
   * change that
   */
  async readLink(name: string): Promise<string> {
    const [holder, link] = [await this.about(), await lstat(this.at(name))];
    // If others may write here, the link can be replaced between lstat and readlink. The sticky bit
    // does not prevent this: the new link can be a hard link to a link of root.
    if (!this.#isFixed || !isOurs(holder) || isWritableByOthers(holder) || !isOurs(link))
      throw new RefusedError(`${path.join(this.shown, name)} is a symbolic link that another user may change`);
    return await readlink(this.at(name));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#handle?.close();
  }
}

async function opened(place: string): Promise<FileHandle | undefined> {
  return hasNames ? await open(place, O_PATH | constants.O_DIRECTORY | constants.O_NOFOLLOW) : undefined;
}

/** Whether nobody but root and this user can put another directory in the place of one. */
const isHeld = (holder: Stats, directory: Stats): boolean =>
  isOurs(holder) && (!isWritableByOthers(holder) || ((holder.mode & 0o1000) !== 0 && isOurs(directory)));

const isOurs = ({ uid }: Stats): boolean => uid === 0 || uid === process.geteuid?.();

const isWritableByOthers = ({ mode }: Stats): boolean => (mode & 0o022) !== 0;

function none(error: NodeJS.ErrnoException): undefined {
  if (error.code !== 'ENOENT' && error.code !== 'ENOTDIR' && error.code !== 'ELOOP') throw error;
}
