/**
 * Reads the entries of a tar archive (ustar with pax or GNU extensions), strictly: what is damaged,
 * cut off or of an unknown kind is an error. The library decodes the header blocks. Its own parser
 * is not used: it skips what it does not know (sparse files and overlong headers among them),
 * accepts an archive that is cut off inside a header, and breaks names that are split between two
 * chunks.
 */
import { Header } from 'tar';
import { messageOf } from '../../../platform/errors.ts';
import { LayerError } from './layer-error.ts';
import { type PaxRecords, parsePax, textOf } from './pax.ts';

type EntryKind = 'file' | 'directory' | 'hard-link' | 'symbolic-link' | 'device' | 'fifo';

export interface EntryHeader {
  kind: EntryKind;
  /** The path as the archive has it. */
  path: string;
  /** The target of a link; empty otherwise. */
  target: string;
  mode: number;
  uid: number;
  gid: number;
  /** Seconds since the epoch. */
  mtime: number;
  /** Bytes of a file; 0 otherwise. */
  size: number;
}

export interface ArchiveEntry extends EntryHeader {
  /** The caller reads it before the next entry; what it leaves unread is skipped. */
  body: AsyncIterable<Buffer>;
}

const BLOCK_BYTES = 512;
const MAX_EXTENSION_BYTES = 1024 * 1024;
const KINDS: Readonly<Record<string, EntryKind>> = {
  '0': 'file',
  '': 'file',
  '1': 'hard-link',
  '2': 'symbolic-link',
  '3': 'device',
  '4': 'device',
  '5': 'directory',
  '6': 'fifo',
  '7': 'file',
};
const NOT_UTF8 = '\uFFFD';

/** @throws LayerError, or the error of `chunks` */
export async function* readArchive(chunks: AsyncIterable<Buffer>): AsyncGenerator<ArchiveEntry, void> {
  const blocks = new Blocks(chunks);
  let extensions: PaxRecords = {};
  for (let block = await blocks.take(BLOCK_BYTES); !isZero(block); block = await blocks.take(BLOCK_BYTES)) {
    const header = decode(block);
    const kind = KINDS[header.typeKey];
    if (kind === undefined) {
      extensions = { ...extensions, ...(await readExtension(header, blocks)) };
      continue;
    }
    const entry = entryOf(kind, header, extensions);
    extensions = {};
    const body = blocks.body(entry.size);
    yield { ...entry, body };
    for await (const _skipped of body);
    await blocks.take(paddingOf(entry.size));
  }
  for await (const chunk of blocks.rest()) {
    if (!isZero(chunk)) throw new LayerError('data follows the end of the archive');
  }
}

function decode(block: Buffer): Header {
  const header = attempt(() => new Header(block));
  if (!header.cksumValid) throw new LayerError('a header is damaged, or this is not a tar archive');
  return header;
}

function attempt<Result>(work: () => Result): Result {
  try {
    return work();
  } catch (error) {
    throw new LayerError(messageOf(error), error);
  }
}

/** What a header says about the entry that follows it. */
async function readExtension(header: Header, blocks: Blocks): Promise<PaxRecords> {
  const { typeKey, size = 0 } = header;
  if (typeKey === 'S') throw new LayerError('it has a sparse file, and sparse files are not supported');
  if (!['x', 'g', 'L', 'K'].includes(typeKey)) throw new LayerError('it has an entry of an unknown type');
  if (size > MAX_EXTENSION_BYTES) throw new LayerError(`an extended header has more than ${MAX_EXTENSION_BYTES} bytes`);
  const body = await blocks.take(size);
  await blocks.take(paddingOf(size));
  switch (typeKey) {
    case 'x':
      return parsePax(body);
    case 'L':
      return { path: textOf(untilNul(body)) };
    case 'K':
      return { linkpath: textOf(untilNul(body)) };
    default:
      // It would apply to all entries; programs that write images use it for comments only.
      if (Object.keys(parsePax(body)).length > 0) throw new LayerError('a global header has properties of entries');
      return {};
  }
}

function entryOf(kind: EntryKind, header: Header, pax: PaxRecords): EntryHeader {
  const path = pax.path ?? header.path ?? '';
  const target = kind.endsWith('link') ? (pax.linkpath ?? header.linkpath ?? '') : '';
  if (path.includes(NOT_UTF8) || target.includes(NOT_UTF8)) throw new LayerError(`a name is not UTF-8 (${path})`);
  const size = kind === 'file' ? (pax.size ?? header.size ?? 0) : 0;
  if (!Number.isSafeInteger(size) || size < 0) throw new LayerError(`${path} has an invalid size`);
  return {
    kind: path.endsWith('/') && kind === 'file' ? 'directory' : kind,
    path,
    target,
    mode: (header.mode ?? 0) & 0o7777,
    uid: pax.uid ?? header.uid ?? 0,
    gid: pax.gid ?? header.gid ?? 0,
    mtime: pax.mtime ?? (header.mtime?.getTime() ?? 0) / 1000,
    size,
  };
}

const paddingOf = (size: number): number => (BLOCK_BYTES - (size % BLOCK_BYTES)) % BLOCK_BYTES;

function untilNul(body: Buffer): Buffer {
  const end = body.indexOf(0);
  return end < 0 ? body : body.subarray(0, end);
}

const ZEROS = Buffer.alloc(128 * 1024);

function isZero(chunk: Buffer): boolean {
  for (let at = 0; at < chunk.length; at += ZEROS.length) {
    const part = chunk.subarray(at, at + ZEROS.length);
    if (!part.equals(ZEROS.subarray(0, part.length))) return false;
  }
  return true;
}

/** Takes bytes from chunks of any size; holds one chunk. */
class Blocks {
  readonly #chunks: AsyncIterator<Buffer>;
  #chunk: Buffer = Buffer.alloc(0);

  constructor(chunks: AsyncIterable<Buffer>) {
    this.#chunks = chunks[Symbol.asyncIterator]();
  }

  async take(bytes: number): Promise<Buffer> {
    if (bytes <= this.#chunk.length) return this.#cut(bytes);
    const parts: Buffer[] = [];
    for await (const part of this.body(bytes)) parts.push(part);
    return Buffer.concat(parts);
  }

  /** The next bytes, in pieces. What one iteration has not read the next one reads. */
  body(bytes: number): AsyncIterable<Buffer> {
    const pieces = this.#pieces(bytes);
    return { [Symbol.asyncIterator]: () => ({ next: () => pieces.next() }) };
  }

  async *rest(): AsyncGenerator<Buffer, void> {
    while (this.#chunk.length > 0 || (await this.#fill())) yield this.#cut(this.#chunk.length);
  }

  async *#pieces(bytes: number): AsyncGenerator<Buffer, void> {
    for (let left = bytes; left > 0; ) {
      if (this.#chunk.length === 0 && !(await this.#fill())) throw new LayerError('it is cut off');
      const piece = this.#cut(Math.min(left, this.#chunk.length));
      left -= piece.length;
      yield piece;
    }
  }

  #cut(bytes: number): Buffer {
    const piece = this.#chunk.subarray(0, bytes);
    this.#chunk = this.#chunk.subarray(bytes);
    return piece;
  }

  /** @returns false at the end */
  async #fill(): Promise<boolean> {
    const { value, done } = await this.#chunks.next();
    if (done !== true) this.#chunk = value;
    return done !== true;
  }
}
