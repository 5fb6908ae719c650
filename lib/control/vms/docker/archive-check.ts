/**
 * Checks a tar archive while it is streamed to a VM, where tar unpacks it. Only checked bytes are
 * passed on. Each entry must be a file, a directory or a link, inside the directory in which the
 * archive is unpacked, and not below a link of the archive. The end must have arrived, because tar
 * accepts a truncated archive as complete.
 */
import { Parser, type ReadEntry } from 'tar';
import { messageOf } from '../../../platform/errors.ts';

/**
 * The allowed kinds of entries. `ContiguousFile` and `OldFile` are older names of a file in tar
 * archives.
 */
const KINDS: ReadonlySet<string> = new Set(['File', 'OldFile', 'ContiguousFile', 'Directory', 'SymbolicLink', 'Link']);
/** The first byte of a gzip file, which the parser would decompress. */
const GZIP = 0x1f;
/** Size limit of the names of all symbolic links together, which are kept until the end. */
const MAX_LINK_CHARS = 1024 * 1024;
/** More than the size of a header with a long name. */
const CORRUPT_TAIL_BYTES = 64 * 1024;

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
    // The parser ignores sparse files and unknown kinds.
    this.#parser.on('ignoredEntry', (entry: ReadEntry) => this.#see(entry));
    this.#parser.on('eof', () => {
      this.#hasEnd = true;
    });
    this.#parser.on('error', (error: Error) => this.#refuse(`cannot be read (${messageOf(error)})`));
  }

  /** Checks the next bytes. Returns the reason if they are refused. */
  check(bytes: Buffer): string | undefined {
    if (!this.#hasBegun && bytes[0] === GZIP) this.#refuse('is compressed');
    this.#hasBegun ||= bytes.length > 0;
    this.#isInFile = (this.#entry?.blockRemain ?? 0) > 0;
    if (this.#refusal === undefined) this.#parser.write(bytes);
    return this.#refusal;
  }

  /**
   * Bytes that make tar reject the archive it has received so far. Empty inside a file, because a
   * truncated file is rejected anyway.
   */
  get corruptTail(): Buffer {
    return Buffer.alloc(this.#isInFile ? 0 : CORRUPT_TAIL_BYTES, 'x');
  }

  /** Call it after the last bytes. Returns the reason if the archive is refused or incomplete. */
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

/** The names in the path; undefined if it leads out of the directory. */
function namesIn(path: string): string[] | undefined {
  const names = path.split('/').filter((name) => name !== '' && name !== '.');
  return path.startsWith('/') || names.includes('..') || path.includes('\0') ? undefined : names;
}
