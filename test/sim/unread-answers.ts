/**
 * Answers of Postgres that do not fit the buffers between it and its client, and that the client
 * has not read yet. Until then Postgres keeps the locks of the statement (law 5). The locked rows
 * are taken from the uuids that the statement and its answer name: more than are really locked, so
 * that no harm is missed.
 */

/**
 * Smaller than real buffers, so that the worlds need not hold megabytes; wide answers of the
 * workload are larger.
 */
export const BUFFER_BYTES = 64 * 1024;

export interface UnreadAnswer {
  who: string;
  keys: ReadonlySet<string>;
  /** Called when it has been read or given up. */
  waiting: Set<() => void>;
}

const UUID = /[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g;

export class UnreadAnswers {
  readonly #unread = new Set<UnreadAnswer>();

  add(who: string, keys: Iterable<string>): UnreadAnswer {
    const answer = { who, keys: new Set(keys), waiting: new Set<() => void>() };
    this.#unread.add(answer);
    return answer;
  }

  /** An answer that keeps a row locked which has one of these names. */
  holderOf(names: Iterable<string>): UnreadAnswer | undefined {
    if (this.#unread.size === 0) return undefined;
    const all = [...names];
    return [...this.#unread].find(({ keys }) => all.some((name) => keys.has(name)));
  }

  /** Calls `goOn` when it has been read or given up; the returned function cancels this. */
  whenReleased(answer: UnreadAnswer, goOn: () => void): () => void {
    answer.waiting.add(goOn);
    return () => answer.waiting.delete(goOn);
  }

  /** The answer has been read, or is given up. False if this was reported before. */
  release(answer: UnreadAnswer): boolean {
    if (!this.#unread.delete(answer)) return false;
    for (const goOn of [...answer.waiting]) goOn();
    return true;
  }

  clear(): void {
    this.#unread.clear();
  }
}

/** Whether such an answer waits for its client. */
export function isWide(rows: readonly unknown[]): boolean {
  let bytes = 0;
  for (const row of rows) {
    bytes += JSON.stringify(row).length;
    if (bytes > BUFFER_BYTES) return true;
  }
  return false;
}

/** The uuids in these values, at any depth. */
export function* namesOf(values: readonly unknown[] = []): Generator<string> {
  for (const value of values) {
    if (typeof value === 'string') yield* value.slice(0, 1_000).match(UUID) ?? [];
    else if (Array.isArray(value)) yield* namesOf(value);
    else if (typeof value === 'object' && value !== null) yield* namesOf(Object.values(value));
  }
}
