/** Finds where the last lines of a log begin, from its end backwards, with one block in memory. */
import { type FileHandle, open } from 'node:fs/promises';
import type { LogFiles } from './log-files.ts';
import { parseHead } from './log-parser.ts';

export interface LogPosition {
  /** The number of the file. */
  number: number;
  offset: number;
}

const BLOCK_BYTES = 64 * 1024;
/** Holds the head of a line that begins at the end of a block. */
const OVERLAP_BYTES = 128;
const NEWLINE = 0x0a;

/** A last line without its end is not counted. Returns undefined if there is no log. */
export async function lastLines(
  files: LogFiles,
  numbers: readonly number[],
  lines: number,
): Promise<LogPosition | undefined> {
  let left = lines;
  let first: LogPosition | undefined;
  for (const number of numbers.toReversed()) {
    const scanned = await scan(files.pathOf(number), left).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT') throw error;
    });
    // Rotation has removed this file and all earlier ones.
    if (scanned === undefined) break;
    first = { number, offset: scanned.offset };
    if (scanned.isEnough) break;
    left -= scanned.lines;
  }
  return first;
}

/**
 * Where the last bytes of the files begin, at an entry of the monitor. The parts of one line are
 * entries of their own, so this also bounds what has no lines, as the output of a program that
 * draws.
 */
export async function lastBytes(
  files: LogFiles,
  numbers: readonly number[],
  bytes: number,
): Promise<LogPosition | undefined> {
  let left = bytes;
  let first: LogPosition | undefined;
  for (const number of numbers.toReversed()) {
    const size = await files.sizeOf(number);
    if (size > left) return { number, offset: await nextEntry(files.pathOf(number), size - left) };
    first = { number, offset: 0 };
    left -= size;
  }
  return first;
}

/** The beginning of the first entry from this offset on; an entry is shorter than a block. */
async function nextEntry(path: string, offset: number): Promise<number> {
  if (offset === 0) return 0;
  const file = await open(path, 'r').catch(() => undefined);
  // Rotation has removed it.
  if (file === undefined) return 0;
  await using _ = file;
  const { bytesRead, buffer } = await file.read(Buffer.alloc(BLOCK_BYTES), 0, BLOCK_BYTES, offset - 1);
  const end = buffer.subarray(0, bytesRead).indexOf(NEWLINE);
  return offset + Math.max(end, 0);
}

interface Scan {
  offset: number;
  /** Whole lines after the offset. */
  lines: number;
  /** The offset is the wanted place; otherwise it is the beginning of the file. */
  isEnough: boolean;
}

/** Looks for the end of the whole line before the last `wanted` ones. */
async function scan(path: string, wanted: number): Promise<Scan> {
  const file = await open(path, 'r');
  try {
    let lines = 0;
    /** Where the last line that was found ends. */
    let end: number | undefined;
    for await (const { start, block, length } of blocksBackwards(file)) {
      // The first line has no newline before it.
      for (let at = length - 1; at >= (start === 0 ? -1 : 0); at -= 1) {
        if (at >= 0 && block[at] !== NEWLINE) continue;
        const isWhole =
          end !== undefined && end > start + at + 1 && parseHead(block.subarray(at + 1))?.isPartial !== true;
        if (isWhole && lines === wanted) return { offset: end ?? 0, lines, isEnough: true };
        if (isWhole) lines += 1;
        end = start + at + 1;
      }
    }
    return { offset: 0, lines, isEnough: false };
  } finally {
    await file.close();
  }
}

/** Each with some bytes of the one after it, beyond `length`. */
async function* blocksBackwards(file: FileHandle) {
  const { size } = await file.stat();
  for (let end = size; end > 0; end -= BLOCK_BYTES) {
    const start = Math.max(0, end - BLOCK_BYTES);
    const all = Buffer.alloc(Math.min(end + OVERLAP_BYTES, size) - start);
    const { bytesRead } = await file.read(all, 0, all.length, start);
    yield { start, block: all.subarray(0, bytesRead), length: Math.min(end - start, bytesRead) };
  }
}
