/**
 * Archives of image layers for tests: tar with pax headers, also ones that are wrong on purpose.
 */
import { gzipSync } from 'node:zlib';
import { Header, type types } from 'tar';

export interface TestEntry {
  path: string;
  /** Default 'File', or 'Directory' if the path ends with a slash. */
  type?: types.EntryTypeName;
  target?: string;
  contents?: string | Buffer;
  mode?: number;
  uid?: number;
  gid?: number;
  /** Seconds. */
  mtime?: number;
  /** More records of its pax header. */
  pax?: Record<string, string | Buffer>;
}

const BLOCK_BYTES = 512;

export function archiveOf(entries: readonly TestEntry[]): Buffer {
  return Buffer.concat([...entries.map(entryOf), Buffer.alloc(2 * BLOCK_BYTES)]);
}

export const gzipArchiveOf = (entries: readonly TestEntry[]): Buffer => gzipSync(archiveOf(entries));

/** Names of any bytes and length are in the pax header. */
export function entryOf(entry: TestEntry): Buffer {
  const { path, target = '', contents = '', pax = {} } = entry;
  const body = Buffer.from(contents);
  const type = entry.type ?? (path.endsWith('/') ? 'Directory' : 'File');
  const size = body.length;
  const mode = entry.mode ?? (type === 'Directory' ? 0o755 : 0o644);
  const { uid = 0, gid = 0, mtime = 1_600_000_000 } = entry;
  const header = headerOf({ type, size, mode, uid, gid, mtime, isLink: target !== '' });
  const records = { path, ...(target === '' ? {} : { linkpath: target }), ...pax };
  return Buffer.concat([paxHeader(records), header, body, Buffer.alloc(paddingOf(size))]);
}

export function paxHeader(records: Record<string, string | Buffer>, type: 'x' | 'g' = 'x'): Buffer {
  const body = Buffer.concat(Object.entries(records).map(([key, value]) => record(key, Buffer.from(value))));
  const name = type === 'x' ? 'ExtendedHeader' : 'GlobalExtendedHeader';
  const header = headerOf({ type: name, size: body.length, mode: 0o644, uid: 0, gid: 0, mtime: 0, isLink: false });
  return Buffer.concat([header, body, Buffer.alloc(paddingOf(body.length))]);
}

interface Fields {
  type: types.EntryTypeName;
  size: number;
  mode: number;
  uid: number;
  gid: number;
  mtime: number;
  isLink: boolean;
}

function headerOf({ isLink, mtime, ...fields }: Fields): Buffer {
  const block = Buffer.alloc(BLOCK_BYTES);
  const link = isLink ? { linkpath: 'in-the-pax-header' } : {};
  const rest = { ...link, mtime: new Date(mtime * 1000), devmaj: 0, devmin: 0 };
  new Header({ path: 'in-the-pax-header', ...rest, ...fields }).encode(block);
  return block;
}

function record(key: string, value: Buffer): Buffer {
  const rest = Buffer.concat([Buffer.from(` ${key}=`), value, Buffer.from('\n')]);
  let length = rest.length;
  while (length !== rest.length + String(length).length) length = rest.length + String(length).length;
  return Buffer.concat([Buffer.from(String(length)), rest]);
}

const paddingOf = (size: number): number => (BLOCK_BYTES - (size % BLOCK_BYTES)) % BLOCK_BYTES;
