/**
 * An agent's journal on a simulated disk: the product's own fold. Records become durable some time
 * after they were written, and after those before them. Records that were not durable when the
 * process died are lost, like a torn end.
 */
import {
  fold,
  type Journal,
  type JournalRecord,
  type JournalState,
  newJournal,
  prune,
} from '../../lib/agent/journal/journal.ts';
import type { SimProcess } from './sim-process.ts';
import { PHASE, type VirtualTime } from './virtual-time.ts';

/** What a server's disk holds; survives the agent's processes. */
export interface Disk {
  journalId: string;
  records: JournalRecord[];
}

export class SimJournal implements Journal {
  readonly #process: SimProcess;
  readonly #time: VirtualTime;
  readonly #disk: Disk;
  #state: JournalState;
  #lastAt = 0;
  /** Written and not durable yet, in order. */
  readonly #pending: (() => void)[] = [];

  constructor({ process, time, disk }: { process: SimProcess; time: VirtualTime; disk: Disk }) {
    this.#process = process;
    this.#time = time;
    this.#disk = disk;
    this.#state = newJournal(disk.journalId);
    process.onKill(() => this.#leave());
    for (const record of disk.records) fold(this.#state, record, sizeOf(record), process.clock.now());
  }

  get state(): JournalState {
    return this.#state;
  }

  append(record: JournalRecord): Promise<void> {
    const now = this.#process.clock.now();
    fold(this.#state, record, sizeOf(record), now);
    if (record.record === 'acknowledged') prune(this.#state, now);
    const { journalId } = this.#state;
    return this.#write(() => {
      if (this.#disk.journalId === journalId) this.#disk.records.push(record);
    });
  }

  renew(): Promise<void> {
    this.#state = newJournal(this.#process.random.uuid());
    const { journalId } = this.#state;
    return this.#write(() => {
      this.#disk.journalId = journalId;
      this.#disk.records = [];
    });
  }

  async close(): Promise<void> {}

  /**
   * Data of a killed process that the kernel had accepted is there at once: a prefix of what was
   * being written.
   */
  #leave(): void {
    if (this.#process.isPowerless) return;
    const taken = this.#process.random.whole(0, this.#pending.length);
    for (const done of this.#pending.splice(0, taken)) done();
  }

  /** Sometimes a disk is slow. */
  #write(done: () => void): Promise<void> {
    const { random, clock } = this.#process;
    const now = clock.now();
    const takes = random.chance(0.03) ? random.between(50, 900) : random.between(0.2, 4);
    this.#lastAt = Math.max(this.#lastAt + 0.001, now + takes);
    const durableInMs = this.#lastAt - now;
    this.#pending.push(done);
    // The disk continues while the process is stopped.
    this.#time.schedule(durableInMs, PHASE.input, () => this.#process.isDead || this.#pending.shift()?.());
    return new Promise((resolve) => {
      this.#process.receive(durableInMs + random.between(0.01, 0.5), resolve);
    });
  }
}

const sizeOf = (record: JournalRecord) => JSON.stringify(record).length;
