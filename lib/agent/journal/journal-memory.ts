/** A journal in memory, for simulated fleets. It lives as long as its agent. */
import type { Random } from '../../platform/random.ts';
import type { Clock } from '../../platform/time/clock.ts';
import { fold, type Journal, type JournalRecord, type JournalState, newJournal, prune } from './journal.ts';

export class MemoryJournal implements Journal {
  readonly #clock: Clock;
  readonly #random: Random;
  #state: JournalState;

  constructor(deps: { clock: Clock; random: Random }) {
    this.#clock = deps.clock;
    this.#random = deps.random;
    this.#state = newJournal(deps.random.uuid());
  }

  get state(): JournalState {
    return this.#state;
  }

  async append(record: JournalRecord): Promise<void> {
    const now = this.#clock.now();
    fold(this.#state, record, JSON.stringify(record).length, now);
    if (record.record === 'acknowledged') prune(this.#state, now);
  }

  async renew(): Promise<void> {
    this.#state = newJournal(this.#random.uuid());
  }

  async close(): Promise<void> {}
}
