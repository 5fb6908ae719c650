/**
 * Reads the log of one container, file after file, as fast as the caller takes the entries. They
 * come in lists of at most one read of the file: a promise for each line would cost more than the
 * line. What is removed by rotation before it is read is skipped, and reported.
 */
import { type FileHandle, open, stat } from 'node:fs/promises';
import { type LogPosition, lastBytes, lastLines } from './last-lines.ts';
import type { LogFiles } from './log-files.ts';
import { type LogEntry, LogParser } from './log-parser.ts';
import type { LogWatch } from './log-watch.ts';

export interface ReadOptions {
  /**
   * The number of whole lines at the end, a wall-clock time in milliseconds, or the number of bytes
   * of files at the end that are not exceeded, or a place that `reached` has told. Default: the
   * beginning.
   */
  from?: { lines: number } | { since: number } | { bytes: number } | { position: LogPosition } | undefined;
  /**
   * Receives where to continue after all entries that the caller has taken; also at the beginning.
   */
  reached?: ((position: LogPosition) => void) | undefined;
  /** How often a log is looked at that is written all the time. */
  pollMs?: number | undefined;
  /** Ends the reading immediately. */
  signal?: AbortSignal | undefined;
  /** Receives how many files rotation has removed before they were read. */
  skipped?: ((files: number) => void) | undefined;
}

interface LogSource {
  files: LogFiles;
  /** Continues with new entries until `ended` aborts, and then to the end of the log. */
  follow?: { watch: LogWatch; ended: AbortSignal } | undefined;
}

const CHUNK_BYTES = 64 * 1024;
/** File systems take the time from a clock that is behind by some milliseconds. */
const MTIME_LAG_MS = 1_000;

export async function* readContainerLog(
  { files, follow }: LogSource,
  options: ReadOptions,
): AsyncGenerator<LogEntry[]> {
  const { signal } = options;
  const isAborted = () => signal?.aborted === true;
  const changes = new Changes(follow?.watch, [follow?.ended, signal], options.pollMs);
  const reader = new Reader(options);
  let file: OpenLog | undefined;
  try {
    while (!isAborted()) {
      changes.forget();
      // Before the read: what is written before the end is then read as well.
      const isLast = follow === undefined || follow.ended.aborted;
      if (file === undefined) {
        file = await openFirst(files, options);
        if (file !== undefined) options.reached?.({ number: file.number, offset: file.offset });
      }
      if (file !== undefined) yield* reader.read(file, isAborted);
      const next = await nextOf(files, file);
      if (next !== undefined && file !== undefined) {
        // The monitor has left this file before the next one got its number.
        yield* reader.read(file, isAborted);
        yield* reader.end();
        if (next > file.number + 1) options.skipped?.(next - file.number - 1);
        await file.handle.close();
        file = await openLog(files, { number: next, offset: 0 });
        options.reached?.({ number: next, offset: 0 });
      } else if (isLast) break;
      else await changes.wait();
    }
    if (!isAborted()) yield* reader.end();
  } finally {
    changes.stop();
    await file?.handle.close();
  }
}

interface OpenLog extends LogPosition {
  handle: FileHandle;
}

class Reader {
  readonly #parser = new LogParser();
  readonly #since: number;
  readonly #reached: ReadOptions['reached'];

  constructor({ from, reached }: ReadOptions) {
    this.#since = from !== undefined && 'since' in from ? from.since : Number.NEGATIVE_INFINITY;
    this.#reached = reached;
  }

  /** Reads to the present end of the file. */
  async *read(file: OpenLog, isAborted: () => boolean): AsyncGenerator<LogEntry[]> {
    while (!isAborted()) {
      const { bytesRead, buffer } = await file.handle.read(Buffer.alloc(CHUNK_BYTES), 0, CHUNK_BYTES, file.offset);
      if (bytesRead === 0) return;
      file.offset += bytesRead;
      yield* this.#wanted(this.#parser.push(buffer.subarray(0, bytesRead)));
      const pending = this.#parser.pendingBytes;
      if (pending !== undefined) this.#reached?.({ number: file.number, offset: file.offset - pending });
    }
  }

  end(): Generator<LogEntry[]> {
    return this.#wanted(this.#parser.end());
  }

  *#wanted(entries: LogEntry[]): Generator<LogEntry[]> {
    const wanted = entries.filter(({ at }) => at >= this.#since);
    if (wanted.length > 0) yield wanted;
  }
}

async function openFirst(files: LogFiles, { from, skipped }: ReadOptions): Promise<OpenLog | undefined> {
  const { numbers } = await files.adopt();
  if (from !== undefined && 'position' in from) {
    const opened = await openLog(files, from.position);
    const [oldest] = numbers;
    if (opened !== undefined || oldest === undefined) return opened;
    // If all numbers are lower, the log of that place is gone as a whole.
    skipped?.(Math.max(oldest - from.position.number, 1));
    return openLog(files, { number: oldest, offset: 0 });
  }
  if (from !== undefined && 'lines' in from) return openLog(files, await lastLines(files, numbers, from.lines));
  if (from !== undefined && 'bytes' in from) return openLog(files, await lastBytes(files, numbers, from.bytes));
  for (const number of numbers) {
    if (from !== undefined && number !== numbers.at(-1) && (await isOlder(files.pathOf(number), from.since))) continue;
    const file = await openLog(files, { number, offset: 0 });
    if (file !== undefined) return file;
  }
  return undefined;
}

/** Whether all of the file was written before. */
async function isOlder(path: string, time: number): Promise<boolean> {
  const found = await stat(path).catch(() => undefined);
  return found === undefined || found.mtimeMs + MTIME_LAG_MS < time;
}

/** Undefined if rotation has removed it. */
async function openLog(files: LogFiles, position: LogPosition | undefined): Promise<OpenLog | undefined> {
  if (position === undefined) return undefined;
  const handle = await open(files.pathOf(position.number), 'r').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return undefined;
    throw error;
  });
  return handle && { ...position, handle };
}

async function nextOf(files: LogFiles, file: OpenLog | undefined): Promise<number | undefined> {
  const { numbers } = await files.adopt();
  return numbers.find((number) => file !== undefined && number > file.number);
}

/** Remembers changes that happen while nobody waits. */
class Changes {
  readonly #unlisten: (() => void)[];
  #isThere = false;
  #wake: () => void = () => undefined;

  constructor(watch: LogWatch | undefined, signals: readonly (AbortSignal | undefined)[], pollMs: number | undefined) {
    const happen = () => {
      this.#isThere = true;
      this.#wake();
    };
    this.#unlisten = watch === undefined ? [] : [watch.listen(happen, pollMs)];
    for (const signal of signals) {
      signal?.addEventListener('abort', happen);
      this.#unlisten.push(() => signal?.removeEventListener('abort', happen));
    }
  }

  forget(): void {
    this.#isThere = false;
  }

  wait(): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = resolve;
      if (this.#isThere) resolve();
    });
  }

  stop(): void {
    for (const unlisten of this.#unlisten) unlisten();
  }
}
