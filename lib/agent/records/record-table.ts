/**
 * The records of one kind on this server by id: in memory, on disk (record-files.ts), and with a
 * lock each. A record that cannot be read is left as it is, and so is what it describes: nobody
 * knows its state. Whoever asks for it gets an error that says so, until the record is repaired and
 * the agent starts again.
 */
import { Semaphore } from '../../platform/limiting/semaphore.ts';
import type { Logger } from '../../platform/log.ts';
import type { RecordFiles } from './record-files.ts';

export interface RecordEntry<Value> {
  record: Value;
  /** False until a new record is written: a killed agent would leave nothing of it. */
  isOnDisk: boolean;
  /** Only its holder works on what the record describes; others wait in order of arrival. */
  readonly lock: Semaphore;
}

/** What callers receive. */
interface RecordErrors {
  notFound(id: string): Error;
  /** The record exists and cannot be read, for this reason. */
  unreadable(id: string, reason: string): Error;
  /** The record cannot be written, for example because the disk is full. */
  unrecorded(id: string, cause: unknown): unknown;
}

interface RecordTableDeps<Value> {
  log: Logger;
  /** What a record describes, for log lines. */
  noun: 'container' | 'image' | 'vm';
  files: RecordFiles<Value>;
  idOf(record: Value): string;
  errors: RecordErrors;
}

export class RecordTable<Value> {
  readonly #deps: RecordTableDeps<Value>;
  readonly #entries = new Map<string, RecordEntry<Value>>();
  /** Why records cannot be read, by their ids. */
  readonly #damaged = new Map<string, string>();

  constructor(deps: RecordTableDeps<Value>) {
    this.#deps = deps;
  }

  /** Call it once, before all else. */
  async load(): Promise<void> {
    const { files, log, noun } = this.#deps;
    const { records, damaged } = await files.load();
    for (const record of records) this.#add(record, true);
    for (const { id, reason } of damaged) {
      this.#damaged.set(id, reason);
      log.error({ [noun]: id, reason }, `${noun}s: a record cannot be read; its ${noun} is left as it is`);
    }
  }

  /** Number of records, including those that cannot be read. */
  get size(): number {
    return this.#entries.size + this.#damaged.size;
  }

  get hasUnreadable(): boolean {
    return this.#damaged.size > 0;
  }

  /** Why the record cannot be read; undefined if it can be read, or does not exist. */
  unreadableReason(id: string): string | undefined {
    return this.#damaged.get(id);
  }

  /** Ids of the records that cannot be read. */
  damagedIds(): string[] {
    return [...this.#damaged.keys()];
  }

  list(): Value[] {
    return Array.from(this.#entries.values(), ({ record }) => record);
  }

  entries(): RecordEntry<Value>[] {
    return [...this.#entries.values()];
  }

  /** Undefined also if the record cannot be read. */
  peek(id: string): RecordEntry<Value> | undefined {
    return this.#entries.get(id);
  }

  /** @throws RecordErrors.unreadable */
  find(id: string): RecordEntry<Value> | undefined {
    const reason = this.#damaged.get(id);
    if (reason !== undefined) throw this.#deps.errors.unreadable(id, reason);
    return this.#entries.get(id);
  }

  /** @throws RecordErrors.unreadable, RecordErrors.notFound */
  get(id: string): RecordEntry<Value> {
    const entry = this.find(id);
    if (entry === undefined) throw this.#deps.errors.notFound(id);
    return entry;
  }

  /** False once the entry is removed. */
  has(entry: RecordEntry<Value>): boolean {
    return this.#entries.get(this.#deps.idOf(entry.record)) === entry;
  }

  /**
   * Adds a new record immediately, and calls `work` with its lock when it is on disk.
   * @throws RecordErrors.unreadable, RecordErrors.unrecorded
   */
  async create<Result>(record: Value, work: (entry: RecordEntry<Value>) => Promise<Result>): Promise<Result> {
    const id = this.#deps.idOf(record);
    if (this.find(id) !== undefined) throw new Error(`There is a record of ${this.#deps.noun} ${id} already`);
    const entry = this.#add(record, false);
    return entry.lock.run(async () => {
      try {
        await this.save(entry, record);
        entry.isOnDisk = true;
      } catch (error) {
        this.#entries.delete(id);
        throw error;
      }
      return work(entry);
    });
  }

  /**
   * Runs `work` while nobody else has the lock. @throws RecordErrors.notFound if the entry was
   * removed meanwhile
   */
  withLock<Result>(entry: RecordEntry<Value>, work: () => Promise<Result>): Promise<Result> {
    return entry.lock.run(async () => {
      if (!this.has(entry)) throw this.#deps.errors.notFound(this.#deps.idOf(entry.record));
      return work();
    });
  }

  /**
   * Replaces the record, first on disk. If it cannot be written and the change is optional, the
   * change is made in memory only. @throws RecordErrors.unrecorded
   */
  async save(entry: RecordEntry<Value>, record: Value, { isOptional = false } = {}): Promise<void> {
    const { files, log, noun, idOf, errors } = this.#deps;
    const id = idOf(record);
    try {
      await files.write(record);
    } catch (err) {
      if (!isOptional) throw errors.unrecorded(id, err);
      log.error({ err, [noun]: id }, `${noun}s: a change cannot be recorded`);
    }
    entry.record = record;
  }

  /** Call it when nothing is left of what the record describes. */
  async remove(entry: RecordEntry<Value>): Promise<void> {
    const id = this.#deps.idOf(entry.record);
    await this.#deps.files.remove(id);
    this.#entries.delete(id);
  }

  /** Removes a record that cannot be read. Call it when nothing is left of what it describes. */
  async removeDamaged(id: string): Promise<void> {
    await this.#deps.files.remove(id);
    this.#damaged.delete(id);
  }

  #add(record: Value, isOnDisk: boolean): RecordEntry<Value> {
    const entry = { record, isOnDisk, lock: new Semaphore(1) };
    this.#entries.set(this.#deps.idOf(record), entry);
    return entry;
  }
}
