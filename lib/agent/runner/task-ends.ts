/**
 * The ends of an agent's tasks: written to the journal first, then sent until they are
 * acknowledged. Owned by Runner.
 */
import type { TaskEndFrame } from '../../protocol/link/frames.ts';
import { type Journal, maxEndBytes } from '../journal/journal.ts';
import type { Outbox } from './outbox.ts';
import { fitEnd } from './task-end.ts';

/** An unacknowledged end is sent again at this interval, in case the instance has lost it. */
const REPEAT_MS = 15_000;

export class TaskEnds {
  readonly #deps: { journal: Journal; outbox: Outbox };
  /** Ended ids whose end this session has not been sent, in order. */
  readonly #unsent = new Set<string>();
  /** Ended ids whose end is being written to disk. */
  readonly #journalling = new Set<string>();
  #repeatAt = 0;

  constructor(deps: { journal: Journal; outbox: Outbox }) {
    this.#deps = deps;
  }

  isJournalling(id: string): boolean {
    return this.#journalling.has(id);
  }

  /** Resolves when the end is on disk, cut if it would fill the journal. */
  async journal(end: TaskEndFrame): Promise<void> {
    const { journal, outbox } = this.#deps;
    const maxBytes = Math.min(outbox.maxFrameBytes, maxEndBytes(journal.state));
    this.#journalling.add(end.id);
    await journal.append({ record: 'ended', end: fitEnd(end, maxBytes) });
    this.#journalling.delete(end.id);
  }

  /** Sends the end of this task, again if it was sent before. */
  send(id: string): void {
    this.#unsent.add(id);
    this.#sendUnsent();
  }

  /** Sends every end again. */
  repeat(): void {
    this.#addAll();
    this.#sendUnsent();
  }

  acknowledged(id: string): void {
    this.#unsent.delete(id);
    this.#sendUnsent();
  }

  tick(now: number): void {
    if (this.#unsent.size > 0) this.#sendUnsent();
    if (now < this.#repeatAt) return;
    this.#repeatAt = now + REPEAT_MS;
    this.#addAll();
  }

  #addAll(): void {
    for (const { id, state } of this.#deps.journal.state.tasks.values()) if (state === 'ended') this.#unsent.add(id);
  }

  /** Sends what the session takes now; the rest follows at the next tick or acknowledgement. */
  #sendUnsent(): void {
    const { outbox, journal } = this.#deps;
    for (const id of this.#unsent) {
      if (!outbox.hasRoomFor(id) || this.#journalling.has(id)) continue;
      const known = journal.state.tasks.get(id);
      if (known?.state === 'ended') outbox.send(fitEnd(known.end, outbox.maxFrameBytes));
      this.#unsent.delete(id);
    }
  }
}
