/**
 * The records of a pax extended header: `LENGTH KEY=VALUE\n`, where LENGTH counts the bytes of the
 * whole record (POSIX, pax interchange format). Values of keys that nothing here uses may be any
 * bytes.
 */
import { isUtf8 } from 'node:buffer';
import { LayerError } from './layer-error.ts';

export interface PaxRecords {
  path?: string;
  linkpath?: string;
  size?: number;
  uid?: number;
  gid?: number;
  /** Seconds since the epoch. */
  mtime?: number;
}

const NUMBER = /^-?\d{1,15}(\.\d*)?$/;
const LENGTH = /^[1-9]\d{0,7}$/;
const MAX_LENGTH_DIGITS = 8;
/** Format 1.0 keeps the map in the body, the older ones in more such records. */
const SPARSE = 'GNU.sparse.';

/** @throws LayerError also for a sparse file, which is announced here */
export function parsePax(body: Buffer): PaxRecords {
  const records: PaxRecords = {};
  for (let position = 0; position < body.length; ) {
    const space = body.subarray(position, position + MAX_LENGTH_DIGITS + 1).indexOf(' ');
    const digits = body.toString('latin1', position, position + Math.max(space, 0));
    const end = position + Number(digits);
    const equals = body.indexOf('=', position);
    const isRecord = LENGTH.test(digits) && end <= body.length && equals > 0 && equals < end && body[end - 1] === 0x0a;
    if (!isRecord) throw new LayerError('an extended header is damaged');
    const key = body.toString('utf8', position + space + 1, equals);
    if (key.startsWith(SPARSE)) throw new LayerError('it has a sparse file, and sparse files are not supported');
    addRecord(records, key, body.subarray(equals + 1, end - 1));
    position = end;
  }
  return records;
}

function addRecord(records: PaxRecords, key: string, value: Buffer): void {
  switch (key) {
    case 'path':
    case 'linkpath':
      // An empty value takes back an earlier one.
      if (value.length === 0) delete records[key];
      else records[key] = textOf(value);
      return;
    case 'size':
    case 'uid':
    case 'gid':
    case 'mtime':
      if (value.length === 0) delete records[key];
      else records[key] = numberOf(key, value.toString('latin1'));
  }
}

/** A name in the archive. @throws LayerError unless it is UTF-8 without a NUL */
export function textOf(value: Buffer): string {
  if (!isUtf8(value)) throw new LayerError(`a name is not UTF-8 (${JSON.stringify(value.toString('latin1'))})`);
  if (value.includes(0)) throw new LayerError('a name holds a NUL character');
  return value.toString('utf8');
}

function numberOf(key: string, text: string): number {
  if (!NUMBER.test(text)) throw new LayerError(`"${text.slice(0, 40)}" is not a valid ${key}`);
  return Number(text);
}
