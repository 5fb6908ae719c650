/**
 * An archive of tar with a directory of this machine, for RECEIVE. Its names are those of GNU tar,
 * which the tar of BusyBox reads as well: it ignores the extended headers of pax. Owners are left
 * out, and so are the bits that make a file run as its owner, who is another one there.
 */
import { constants } from 'node:fs';
import { lstat, open, readdir, readlink } from 'node:fs/promises';
import { Header, type types } from 'tar';
import { ARCHIVE_END, ARCHIVED_TREE } from '../../protocol/streams/copy/copy-scripts.ts';
import { RefusedError } from '../terminal/command-errors.ts';

interface Facts {
  path: string;
  type: types.EntryTypeName;
  mode?: number;
  size?: number;
  mtime?: Date;
  linkpath?: string;
}

const BLOCK_BYTES = 512;
const MAX_NAME_BYTES = 100;
const PIECE_BYTES = 64 * 1024;

/**
 * Fails with the errors of files that cannot be read. @throws RefusedError for what cannot be
 * copied
 */
export async function* packTree(directory: string): AsyncGenerator<Buffer> {
  yield* packed(directory, ARCHIVED_TREE);
  yield headerOf({ path: ARCHIVE_END, type: 'File', mode: 0o600 });
  yield Buffer.alloc(2 * BLOCK_BYTES);
}

async function* packed(file: string, name: string): AsyncGenerator<Buffer> {
  const about = await lstat(file);
  const { mtime } = about;
  const mode = about.mode & 0o777;
  if (about.isSymbolicLink()) {
    yield* named({ path: name, type: 'SymbolicLink', mode, mtime, linkpath: await readlink(file) });
  } else if (about.isDirectory()) {
    yield* named({ path: `${name}/`, type: 'Directory', mode, mtime });
    for (const each of (await readdir(file)).sort()) yield* packed(`${file}/${each}`, `${name}/${each}`);
  } else if (about.isFile()) yield* packedFile(file, { path: name, mode, mtime });
  else throw new RefusedError(`${file} is not a file, a directory or a symbolic link`);
}

async function* packedFile(file: string, facts: Omit<Facts, 'type' | 'size'>): AsyncGenerator<Buffer> {
  const opened = await open(file, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  try {
    const { size } = await opened.stat();
    yield* named({ ...facts, type: 'File', size });
    let at = 0;
    while (at < size) {
      const { buffer, bytesRead } = await opened.read(Buffer.alloc(Math.min(PIECE_BYTES, size - at)), { position: at });
      if (bytesRead === 0) throw new RefusedError(`${file} has become shorter while it was copied`);
      at += bytesRead;
      yield buffer.subarray(0, bytesRead);
    }
    yield Buffer.alloc((BLOCK_BYTES - (size % BLOCK_BYTES)) % BLOCK_BYTES);
  } finally {
    await opened.close();
  }
}

function* named(facts: Facts): Generator<Buffer> {
  const { path, linkpath = '' } = facts;
  if (Buffer.byteLength(linkpath) > MAX_NAME_BYTES) yield longName('NextFileHasLongLinkpath', linkpath);
  if (Buffer.byteLength(path) > MAX_NAME_BYTES) yield longName('NextFileHasLongPath', path);
  yield headerOf({ ...facts, path: shortened(path), ...(linkpath !== '' && { linkpath: shortened(linkpath) }) });
}

function longName(type: types.EntryTypeName, name: string): Buffer {
  const bytes = Buffer.from(`${name}\0`);
  const padding = Buffer.alloc((BLOCK_BYTES - (bytes.length % BLOCK_BYTES)) % BLOCK_BYTES);
  return Buffer.concat([headerOf({ path: '././@LongLink', type, size: bytes.length }), bytes, padding]);
}

function headerOf({ mode = 0, size = 0, ...facts }: Facts): Buffer {
  const header = new Header({ ...facts, mode, size, uid: 0, gid: 0 });
  header.encode();
  return header.block as Buffer;
}

const shortened = (name: string): string =>
  Buffer.byteLength(name) > MAX_NAME_BYTES
    ? Buffer.from(name)
        .subarray(0, MAX_NAME_BYTES)
        .toString('latin1')
        .replace(/[^ -~]/g, '_')
    : name;
