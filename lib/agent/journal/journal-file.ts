/**
 * The journal on disk: one file of lines, `crc32 json`, appended and fdatasynced. Records appended
 * during a write share the next write (group commit). When the file is mostly history, a compacted
 * one is written beside it and renamed over it.
 *
 * Reading: an incomplete end (a crash between write and fsync) is removed; its records were never
 * reported. Damage in the middle means that the file cannot be trusted: it is set aside and a new
 * journal begins. The new journal's id shows this to the instances.
 *
 * When a task with secrets ends, the file is rewritten immediately and no longer contains its
 * params.
 *
 * A write that fails (disk full) is logged once and retried until it succeeds or the journal is
 * closed. Callers wait meanwhile. The file is then rewritten, because it is unknown which part of
 * it is on disk.
 */
import { createReadStream } from 'node:fs';
import { type FileHandle, open, rename, stat, unlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { crc32 } from 'node:zlib';
import type { Logger } from '../../platform/log.ts';
import type { Random } from '../../platform/random.ts';
import type { Clock } from '../../platform/time/clock.ts';
import { hasSecrets } from '../../protocol/secret-params.ts';
import { syncDirectory } from '../sync-directory.ts';
import {
  fold,
  type Journal,
  type JournalRecord,
  JournalRecordError,
  type JournalState,
  needsCompaction,
  newJournal,
  prune,
  recordsOf,
} from './journal.ts';

/** A line that is folded but not yet on disk, and the callback of its caller. */
interface Waiting {
  line: string;
  done: () => void;
}

const RETRY_MS = 1000;
const PAGE_BYTES = 256 * 1024;

interface JournalFileDeps {
  directory: string;
  clock: Clock;
  random: Random;
  log: Logger;
}

export class JournalFile implements Journal {
  readonly #deps: JournalFileDeps;
  readonly #path: string;
  #state: JournalState;
  #file: FileHandle | undefined;
  #bytes = 0;
  #compactedBytes = 0;
  #pending: Waiting[] = [];
  /** What the current write makes durable. */
  #batch: Waiting[] = [];
  #writing: Promise<void> | undefined;
  /** True when the file must be rewritten: it may lack records, or it holds too much. */
  #rewrite = false;
  #closed = false;

  private constructor(deps: JournalFileDeps, path: string, state: JournalState) {
    this.#deps = deps;
    this.#path = path;
    this.#state = state;
  }

  /** Reads the journal of `directory`, or begins one. The caller holds the directory's lock. */
  static async open(deps: JournalFileDeps): Promise<JournalFile> {
    const path = join(deps.directory, 'journal');
    const state = (await readState(path, deps)) ?? newJournal(deps.random.uuid());
    const journal = new JournalFile(deps, path, state);
    await journal.#writeAnew();
    return journal;
  }

  get state(): JournalState {
    return this.#state;
  }

  append(record: JournalRecord): Promise<void> {
    const line = encodeLine(record);
    if (this.#endsSecrets(record)) this.#rewrite = true;
    const now = this.#deps.clock.now();
    fold(this.#state, record, line.length, now);
    if (record.record === 'acknowledged') prune(this.#state, now);
    return this.#enqueue(line);
  }

  #endsSecrets(record: JournalRecord): boolean {
    if (record.record !== 'ended' && record.record !== 'acknowledged') return false;
    const held = this.#state.tasks.get(record.record === 'ended' ? record.end.id : record.id);
    return held !== undefined && 'task' in held && hasSecrets(held.task.params);
  }

  renew(): Promise<void> {
    this.#state = newJournal(this.#deps.random.uuid());
    this.#rewrite = true;
    return this.#enqueue('');
  }

  /** Waits for the current write. Gives up what still cannot be written. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.#writing;
    await this.#file?.close();
    this.#file = undefined;
  }

  #enqueue(line: string): Promise<void> {
    return new Promise((done) => {
      this.#pending.push({ line, done });
      this.#writing ??= this.#drain();
    });
  }

  async #drain(): Promise<void> {
    await Promise.resolve();
    while (this.#pending.length > 0) {
      this.#batch = this.#pending;
      this.#pending = [];
      if (!(await this.#writeBatch())) break;
      for (const { done } of this.#batch) done();
    }
    this.#batch = [];
    this.#writing = undefined;
  }

  /** False when the write was given up. */
  async #writeBatch(): Promise<boolean> {
    for (let failures = 0; ; failures++) {
      try {
        if (this.#rewrite || needsCompaction(this.#bytes, this.#compactedBytes)) await this.#writeAnew();
        else await this.#write(this.#batch.map(({ line }) => line).join(''));
        if (failures > 0) this.#deps.log.info({ path: this.#path, failures }, 'journal: writable again');
        return true;
      } catch (err) {
        this.#rewrite = true;
        const { log } = this.#deps;
        if (failures === 0) log.error({ err, path: this.#path }, 'journal: not writable; trying again each second');
        if (this.#closed) return false;
        await this.#deps.clock.sleep(RETRY_MS);
      }
    }
  }

  async #write(lines: string): Promise<void> {
    if (!this.#file) throw new Error('the journal is closed');
    this.#bytes += await writeWhole(this.#file, lines);
    await this.#file.datasync();
  }

  /**
   * Writes the state, which includes all pending lines. Those lines join the batch; otherwise they
   * would be folded twice.
   */
  async #writeAnew(): Promise<void> {
    const draft = `${this.#path}.new`;
    const file = await open(draft, 'w', 0o600);
    try {
      this.#rewrite = false;
      this.#batch.push(...this.#pending.splice(0));
      const bytes = await writeRecords(file, recordsOf(this.#state));
      await file.datasync();
      await rename(draft, this.#path);
      await syncDirectory(dirname(this.#path));
      this.#bytes = bytes;
      this.#compactedBytes = bytes;
    } catch (error) {
      await file.close();
      throw error;
    }
    await this.#file?.close();
    this.#file = file;
  }
}

/** Writes page by page. All records are encoded first, so they belong to one moment. */
async function writeRecords(file: FileHandle, records: Iterable<JournalRecord>): Promise<number> {
  const lines = Array.from(records, encodeLine);
  let bytes = 0;
  for (let from = 0; from < lines.length; ) {
    let page = '';
    while (from < lines.length && page.length < PAGE_BYTES) page += lines[from++];
    bytes += await writeWhole(file, page);
  }
  return bytes;
}

/** On a nearly full disk a plain write may take only part of the text without an error. */
async function writeWhole(file: FileHandle, text: string): Promise<number> {
  const bytes = Buffer.from(text);
  await file.appendFile(bytes);
  return bytes.length;
}

function encodeLine(record: JournalRecord): string {
  const json = JSON.stringify(record);
  return `${crc32(json).toString(16).padStart(8, '0')} ${json}\n`;
}

function decodeLine(line: string): JournalRecord | undefined {
  const json = line.slice(9);
  if (line.slice(0, 9) !== `${crc32(json).toString(16).padStart(8, '0')} `) return undefined;
  return JSON.parse(json) as JournalRecord;
}

async function readState(path: string, deps: JournalFileDeps): Promise<JournalState | undefined> {
  await unlink(`${path}.new`).catch(() => undefined);
  if ((await stat(path).catch(() => undefined)) === undefined) return undefined;
  try {
    return await foldFile(path, deps);
  } catch (err) {
    if (!(err instanceof DamagedJournal) && !(err instanceof JournalRecordError)) throw err;
    const aside = `${path}.damaged-${deps.random.uuid().slice(0, 8)}`;
    await rename(path, aside);
    deps.log.error({ err, aside }, 'journal: damaged; renamed the file and started a new journal');
    return undefined;
  }
}

class DamagedJournal extends Error {}

async function foldFile(path: string, deps: JournalFileDeps): Promise<JournalState> {
  const now = deps.clock.now();
  let state: JournalState | undefined;
  let badLine = 0;
  let number = 0;
  for await (const line of linesOf(path)) {
    number += 1;
    const record = decodeLine(line);
    if (!record) {
      badLine ||= number;
      continue;
    }
    if (badLine) throw new DamagedJournal(`line ${badLine} of ${path} is damaged, and lines after it are not`);
    if (record.record === 'begin') state = { ...newJournal(record.journalId), epoch: record.epoch };
    else if (state) fold(state, record, line.length + 1, now);
    else throw new DamagedJournal(`${path} has no begin record at its start`);
  }
  if (!state) throw new DamagedJournal(`${path} is empty`);
  if (badLine) deps.log.warn({ path, line: badLine }, 'journal: removed an incomplete line after a crash');
  prune(state, now);
  return state;
}

/** Lines end at a line feed only. A last line without one counts as a damaged line. */
async function* linesOf(path: string): AsyncGenerator<string> {
  let rest = Buffer.alloc(0);
  for await (const chunk of createReadStream(path, { highWaterMark: PAGE_BYTES })) {
    rest = Buffer.concat([rest, chunk as Buffer]);
    let from = 0;
    for (let at = rest.indexOf(10); at >= 0; at = rest.indexOf(10, from)) {
      yield rest.toString('utf8', from, at);
      from = at + 1;
    }
    rest = rest.subarray(from);
  }
  if (rest.length > 0) yield '';
}
