/** Records in memory, as they would be on disk. */
import type { RecordFiles } from '../../lib/agent/records/record-files.ts';

export class MemoryRecords<Value> implements RecordFiles<Value> {
  readonly kept = new Map<string, string>();
  /** Called before each write; an error of it is one of the disk. */
  beforeWrite: (value: Value) => void | Promise<void> = () => undefined;
  readonly #damaged = new Map<string, string>();
  readonly #idOf: (value: Value) => string;

  constructor(idOf: (value: Value) => string) {
    this.#idOf = idOf;
  }

  /**
   * The record cannot be read any more; by default it is one of a newer agent. `repair` restores
   * it.
   */
  damage(id: string, reason = 'The record has version 2, and this agent writes 1'): { repair(): void } {
    const right = this.kept.get(id) ?? '';
    this.kept.delete(id);
    this.#damaged.set(id, reason);
    return {
      repair: () => {
        this.#damaged.delete(id);
        this.kept.set(id, right);
      },
    };
  }

  /** Makes each later write of a record fail. */
  fill(): void {
    this.beforeWrite = () => {
      throw new Error('ENOSPC: no space left on device');
    };
  }

  async load() {
    const damaged = Array.from(this.#damaged, ([id, reason]) => ({ id, reason }));
    return { records: Array.from(this.kept.values(), (text) => JSON.parse(text) as Value), damaged };
  }

  async write(value: Value) {
    await this.beforeWrite(value);
    this.kept.set(this.#idOf(value), JSON.stringify(value));
  }

  async remove(id: string) {
    this.kept.delete(id);
    this.#damaged.delete(id);
  }
}
