/** Writes a run's history as it happens, and knows its time. */
import { createWriteStream, readFileSync } from 'node:fs';
import { finished } from 'node:stream/promises';
import { systemClock as clock } from '../../lib/platform/time/clock.ts';
import type { Entry, Workload } from './history.ts';

const CLOCKS_EVERY_MS = 2_000;

export class Recorder {
  readonly file: string;
  /** When the latest completed round of each workload began. */
  readonly lastRound = new Map<Workload, number>();
  asked = 0;
  unanswered = 0;
  readonly #stream;
  readonly #timer = clock.every(CLOCKS_EVERY_MS, () => this.#writeClocks());

  constructor(file: string) {
    this.file = file;
    this.#stream = createWriteStream(file);
    this.#writeClocks();
  }

  now(): number {
    return Math.round(clock.now() * 10) / 10;
  }

  write(entry: Entry): void {
    this.#stream.write(`${JSON.stringify(entry)}\n`);
    if (entry.kind !== 'op') return;
    this.asked += 1;
    if (entry.status === 0) this.unanswered += 1;
  }

  roundDone(workload: Workload, begunAt: number): void {
    this.lastRound.set(workload, Math.max(begunAt, this.lastRound.get(workload) ?? 0));
  }

  async close(): Promise<void> {
    this.#timer.cancel();
    this.#writeClocks();
    this.#stream.end();
    await finished(this.#stream);
  }

  #writeClocks(): void {
    const uptime = 1000 * Number(readFileSync('/proc/uptime', 'latin1').split(' ')[0]);
    this.write({ kind: 'clock', at: this.now(), wall: clock.wallTime(), uptime });
  }
}
