/**
 * A read that many followers may want at the same time. Those that ask the same while it runs, or
 * waits for its turn, share the answer. All reads of one semaphore together use at most so many
 * connections to the database.
 */
import type { Semaphore } from '../../../platform/limiting/semaphore.ts';

export class SharedRead<Question, Answer> {
  readonly #semaphore: Semaphore;
  readonly #read: (question: Question) => Promise<Answer>;
  readonly #asked = new Map<string, Promise<Answer>>();

  constructor(semaphore: Semaphore, read: (question: Question) => Promise<Answer>) {
    this.#semaphore = semaphore;
    this.#read = read;
  }

  /** @throws what the read throws */
  ask(question: Question): Promise<Answer> {
    const key = JSON.stringify(question);
    const asked = this.#asked.get(key);
    if (asked !== undefined) return asked;
    const answer = this.#semaphore.run(() => this.#read(question)).finally(() => this.#asked.delete(key));
    this.#asked.set(key, answer);
    return answer;
  }
}
