/**
 * An agent's journal over a simulated disk: the product's own fold, records durable a while after they were written, and those
 * before them. What was not durable when the process died is gone, as a torn end is.
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

/** What a server's disk holds of it; outlives the agent's processes. */
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

  /** What the kernel had taken of a killed process is there at once; it is a beginning of what was on its way. */
  #leave(): void {
    if (this.#process.isPowerless) return;
    const taken = this.#process.random.whole(0, this.#pending.length);
    for (const done of this.#pending.splice(0, taken)) done();
  }

  /** Now and then a disk takes its time. */
  #write(done: () => void): Promise<void> {
    const { random, clock } = this.#process;
    const now = clock.now();
    const takes = random.chance(0.03) ? random.between(50, 900) : random.between(0.2, 4);
    this.#lastAt = Math.max(this.#lastAt + 0.001, now + takes);
    const durableInMs = this.#lastAt - now;
    this.#pending.push(done);
    // The disk goes on while the process stands still.
    this.#time.schedule(durableInMs, PHASE.input, () => this.#process.isDead || this.#pending.shift()?.());
    return new Promise((resolve) => {
      this.#process.receive(durableInMs + random.between(0.01, 0.5), resolve);
    });
  }
}

const sizeOf = (record: JournalRecord) => JSON.stringify(record).length;
