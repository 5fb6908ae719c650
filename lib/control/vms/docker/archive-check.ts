/**
 * Looks at an archive of tar on its way to a VM, where a program tar unpacks it. Nothing is passed on that has not
 * been looked at. Each entry must be a file, a directory or a link, inside of the directory that it is
 * unpacked in, and not below a link of the archive; and the end must have arrived, because programs
 * tar take a cut archive for a whole one.
 */
import { Parser, type ReadEntry } from 'tar';
import { messageOf } from '../../../platform/errors.ts';

/** With the names of GNU tar for a file that fills its blocks, and of the one before POSIX. */
const KINDS: ReadonlySet<string> = new Set(['File', 'OldFile', 'ContiguousFile', 'Directory', 'SymbolicLink', 'Link']);
/** The first byte of what gzip makes, which the parser would unpack. */
const GZIP = 0x1f;
/** Of the names of symbolic links, which are kept to the end. */
const MAX_LINK_CHARS = 1024 * 1024;
/** More than a header with a long name has. */
const SPOILER_BYTES = 64 * 1024;

export class ArchiveCheck {
  readonly #parser: Parser;
  readonly #links = new Set<string>();
  #linkChars = 0;
  #hasBegun = false;
  #hasEnd = false;
  #refusal: string | undefined;
  #entry: ReadEntry | undefined;
  #isInFile = false;

  constructor() {
    this.#parser = new Parser({ strict: true, zstd: false, onReadEntry: (entry) => this.#see(entry) });
    // Sparse files, and kinds that nobody knows.
    this.#parser.on('ignoredEntry', (entry: ReadEntry) => this.#see(entry));
    this.#parser.on('eof', () => {
      this.#hasEnd = true;
    });
    this.#parser.on('error', (error: Error) => this.#refuse(`cannot be read (${messageOf(error)})`));
  }

  /** Why the next bytes are refused, as a sentence. */
  look(bytes: Buffer): string | undefined {
    if (!this.#hasBegun && bytes[0] === GZIP) this.#refuse('is compressed');
    this.#hasBegun ||= bytes.length > 0;
    this.#isInFile = (this.#entry?.blockRemain ?? 0) > 0;
    if (this.#refusal === undefined) this.#parser.write(bytes);
    return this.#refusal;
  }

  /**
   * What makes an archive of the bytes before the refused ones one that no program tar takes for whole.
   * Within a file that is their end alone.
   */
  get spoiler(): Buffer {
    return Buffer.alloc(this.#isInFile ? 0 : SPOILER_BYTES, 'x');
  }

  /** Why it is not whole, as a sentence. */
  end(): string | undefined {
    this.#isInFile = (this.#entry?.blockRemain ?? 0) > 0;
    if (!this.#hasEnd) this.#refuse('has no end; only a part of it arrived');
    return this.#refusal;
  }

  #see(entry: ReadEntry): void {
    this.#entry = entry;
    entry.resume();
    const { type, path, linkpath = '' } = entry;
    const names = namesIn(path);
    if (!KINDS.has(type)) return this.#refuse(`has ${path} of the kind ${type}`);
    if (names === undefined) return this.#refuse(`has ${path}, which is outside of its directory`);
    if (names.some((_, depth) => depth > 0 && this.#links.has(names.slice(0, depth).join('/'))))
      return this.#refuse(`has ${path}, which is below a link`);
    if (type === 'Link' && namesIn(linkpath) === undefined)
      return this.#refuse(`has a link ${path} to ${linkpath}, which is outside of its directory`);
    if (type === 'SymbolicLink') this.#addLink(names.join('/'));
  }

  #addLink(name: string): void {
    this.#linkChars += name.length;
    if (this.#linkChars > MAX_LINK_CHARS) return this.#refuse('has too many links with long names');
    this.#links.add(name);
  }

  #refuse(why: string): void {
    this.#refusal ??= `the archive ${why}`;
  }
}

/** Undefined if it leaves the directory. */
function namesIn(path: string): string[] | undefined {
  const names = path.split('/').filter((name) => name !== '' && name !== '.');
  return path.startsWith('/') || names.includes('..') || path.includes('\0') ? undefined : names;
}
