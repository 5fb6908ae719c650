/**
 * Unpacks an archive of tar that a server has sent into a new directory, which is empty and
 * private. The server may be hostile: an entry that is not a file, a directory or a link, that lies
 * outside of the directory, or in something that is not a directory of this archive, ends it all.
 * So nothing is written through a link, whichever links the archive has.
 *
 * The library reads the archive only. Its way to unpack, and that of the programs tar, replaces and
 * repairs what this refuses.
 */
import { constants } from 'node:fs';
import { chmod, link, lstat, mkdir, open, stat, symlink, utimes } from 'node:fs/promises';
import path from 'node:path';
import { Writable } from 'node:stream';
import { Parser, type ReadEntry } from 'tar';
import { RefusedError } from '../terminal/command-errors.ts';

/** The name of GNU tar for a file that fills its blocks, and the one before POSIX. */
const FILES: ReadonlySet<string> = new Set(['File', 'OldFile', 'ContiguousFile']);
const KINDS: Readonly<Record<string, string>> = {
  CharacterDevice: 'a device',
  BlockDevice: 'a device',
  FIFO: 'a named pipe',
};

interface TreeLimits {
  entries: number;
  /** Limit of all directory names together, which are kept until the end. */
  nameChars: number;
}

/** The entries are as many as a layer of an image may have. */
const LIMITS: TreeLimits = { entries: 500_000, nameChars: 64 * 1024 * 1024 };
/**
 * The first byte of what gzip makes. No name in an archive of `tar -C DIRECTORY .` begins with it.
 */
const GZIP = 0x1f;

interface Directory {
  mode: number;
  mtime: Date | undefined;
}

export class ArrivingTree extends Writable {
  readonly #root: string;
  readonly #parser: Parser;
  /** Directories by their path in the archive; '' is the root. */
  readonly #directories = new Map<string, Directory>();
  readonly #limits: TreeLimits;
  #placing = Promise.resolve();
  #hasBegun = false;
  #hasEnd = false;
  #entries = 0;
  #nameChars = 0;

  /** `root`: an existing, empty directory. */
  constructor(root: string, limits = LIMITS) {
    super();
    this.#root = root;
    this.#limits = limits;
    this.#parser = new Parser({
      strict: true,
      zstd: false,
      onReadEntry: (entry) => {
        this.#entries += 1;
        this.#placing = this.#placing
          .then(() => this.#place(entry))
          .catch((error: unknown) => void this.destroy(asError(error)));
      },
    });
    this.#parser.on('eof', () => {
      this.#hasEnd = true;
    });
    this.#parser.on('error', (error: Error) =>
      this.destroy(refusal(`an archive that cannot be read (${error.message})`)),
    );
  }

  override _write(piece: Buffer, _encoding: string, done: (error?: Error | null) => void): void {
    // A small piece of it could hold a million entries, which the parser would all keep.
    if (!this.#hasBegun && piece[0] === GZIP) return done(refusal('a compressed archive'));
    this.#hasBegun ||= piece.length > 0;
    try {
      if (this.#parser.write(piece)) done();
      else this.#parser.once('drain', () => done());
    } catch (error) {
      done(asError(error));
    }
  }

  override _final(done: (error?: Error | null) => void): void {
    const ended = new Promise<void>((resolve) => this.#parser.once('end', () => resolve()));
    this.#parser.end();
    ended
      .then(() => this.#placing)
      .then(() => this.#complete())
      .then(() => done(), done);
  }

  async #place(entry: ReadEntry): Promise<void> {
    const { type, mode = 0, mtime } = entry;
    if (this.destroyed) return void entry.resume();
    const { entries } = this.#limits;
    if (this.#entries > entries) throw refusal(`more than ${entries} files and directories; copy fewer in one command`);
    const name = nameIn(entry.path);
    const parent = path.posix.dirname(name);
    if (name !== '' && !this.#directories.has(parent === '.' ? '' : parent))
      throw refusal(`${entry.path}, which is in none of the directories that it has sent`);
    const place = path.join(this.#root, name);
    if (type === 'Directory') {
      await this.#makeDirectory(name, { mode: mode & 0o777, mtime });
    } else if (name === '') {
      throw refusal('something other than a directory');
    } else if (FILES.has(type)) {
      return await writeFile(place, entry).catch(twice(entry.path));
    } else if (type === 'SymbolicLink') {
      await symlink(entry.linkpath ?? '', place).catch(twice(entry.path));
    } else if (type === 'Link') {
      await this.#link(entry.linkpath ?? '', place).catch(twice(entry.path));
    } else throw refusal(`${entry.path}, which is ${KINDS[type] ?? `of the unknown kind ${type}`}`);
    entry.resume();
  }

  async #makeDirectory(name: string, facts: Directory): Promise<void> {
    const place = path.join(this.#root, name);
    if (!this.#directories.has(name)) this.#nameChars += name.length;
    if (this.#nameChars > this.#limits.nameChars) throw refusal('too many directories with long names');
    if (name !== '' && !this.#directories.has(name))
      // Its owner has to write into it. The umask applies as to any new directory.
      await mkdir(place, facts.mode | 0o700).catch(twice(name));
    this.#directories.set(name, facts);
  }

  async #link(target: string, place: string): Promise<void> {
    const name = nameIn(target);
    const parent = path.posix.dirname(name);
    const file = path.join(this.#root, name);
    if (!this.#directories.has(parent === '.' ? '' : parent) || !(await lstat(file).catch(() => undefined))?.isFile())
      throw refusal(`a link to ${target}, which is none of the files that it has sent`);
    await link(file, place);
  }

  /** The last ones first, because a directory may take no more then. */
  async #complete(): Promise<void> {
    // Where the archive was cut between two files, the parser misses nothing.
    if (!this.#hasEnd) throw refusal('only a part of the directory');
    if (!this.#directories.has('')) throw refusal('no directory');
    for (const [name, { mode, mtime }] of [...this.#directories].reverse()) {
      const place = path.join(this.#root, name);
      await chmod(place, (await stat(place)).mode & mode);
      if (mtime !== undefined) await utimes(place, mtime, mtime);
    }
  }
}

/** @throws RefusedError if it leaves the directory */
function nameIn(entryPath: string): string {
  const names = entryPath.split('/').filter((name) => name !== '' && name !== '.');
  if (entryPath.startsWith('/') || names.includes('..') || entryPath.includes('\0'))
    throw refusal(`${entryPath}, which is outside of the directory`);
  return names.join('/');
}

async function writeFile(place: string, entry: ReadEntry): Promise<void> {
  const { O_CREAT, O_EXCL, O_WRONLY, O_NOFOLLOW } = constants;
  const file = await open(place, O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW, (entry.mode ?? 0) & 0o777);
  try {
    for await (const piece of entry) await file.writeFile(piece);
    if (entry.mtime !== undefined) await file.utimes(entry.mtime, entry.mtime);
  } finally {
    await file.close();
  }
}

const asError = (error: unknown): Error => (error instanceof Error ? error : new Error(String(error)));

const twice = (name: string) => (error: NodeJS.ErrnoException) => {
  throw error.code === 'EEXIST' ? refusal(`${name} twice`) : error;
};

const refusal = (what: string) => new RefusedError(`nothing was copied: the server has sent ${what}`);
