/**
 * Which topics this process wants to hear, and which of them the server has confirmed: data for `line-bus.ts`, which
 * asks for the difference and carries it to the server, one change at a time, however often somebody subscribes.
 *
 *     subscribe               takeChange                 confirm
 *   ───────────▶ wanted ────────────────▶ asked ──────────────────▶ standing ──┐ subscribe: ready at once
 *                  ▲                        │ lost                  │  ▲       │
 *                  └────────────────────────┴───────────────────────┘  └───────┘
 *   the last handler leaves: takeChange lists the topic to be unheard, if it was asked for or stands
 *
 * No I/O and no callbacks run in here: what is due to be called is returned.
 */
export interface Handler<Message> {
  readonly topic: string;
  readonly onMessage: (message: Message) => void;
  readonly onReady: (() => void) | undefined;
}

/** Topics to begin and to cease hearing. */
export interface TopicChange {
  hear: string[];
  unhear: string[];
}

export class Subscriptions<Message> {
  readonly #handlers = new Map<string, Set<Handler<Message>>>();
  readonly #standing = new Set<string>();
  /** Topics for which what is wanted may differ from what stands. */
  readonly #dirty = new Set<string>();

  get topicCount(): number {
    return this.#handlers.size;
  }

  /** Adds a handler; true when its topic stands already, so that it is ready now. */
  add(handler: Handler<Message>): boolean {
    const handlers = this.#handlers.get(handler.topic);
    if (handlers) handlers.add(handler);
    else this.#handlers.set(handler.topic, new Set([handler]));
    const standing = this.#standing.has(handler.topic);
    if (!standing) this.#dirty.add(handler.topic);
    return standing;
  }

  /** Removes a handler; harmless twice. */
  remove(handler: Handler<Message>): void {
    const handlers = this.#handlers.get(handler.topic);
    if (!handlers?.delete(handler) || handlers.size > 0) return;
    this.#handlers.delete(handler.topic);
    this.#dirty.add(handler.topic);
  }

  has(handler: Handler<Message>): boolean {
    return this.#handlers.get(handler.topic)?.has(handler) ?? false;
  }

  /** Those who hear `topic` now; a copy, because handlers subscribe and close. */
  handlersOf(topic: string): Handler<Message>[] {
    return [...(this.#handlers.get(topic) ?? [])];
  }

  /**
   * At most `limit` topics' difference between what is wanted and what stands; undefined when there is none. A topic to
   * be unheard stops standing here and now: whoever subscribes it meanwhile waits for a confirmation of their own.
   */
  takeChange(limit: number): TopicChange | undefined {
    const change: TopicChange = { hear: [], unhear: [] };
    for (const topic of this.#dirty) {
      if (change.hear.length + change.unhear.length >= limit) break;
      this.#dirty.delete(topic);
      const wanted = this.#handlers.has(topic);
      if (wanted && !this.#standing.has(topic)) change.hear.push(topic);
      if (!wanted && this.#standing.delete(topic)) change.unhear.push(topic);
    }
    return change.hear.length + change.unhear.length > 0 ? change : undefined;
  }

  /** The server carried out `change`: returns the handlers that are ready from now on. */
  confirm(change: TopicChange): Handler<Message>[] {
    const ready: Handler<Message>[] = [];
    for (const topic of change.hear) {
      this.#standing.add(topic);
      ready.push(...this.handlersOf(topic));
    }
    return ready;
  }

  /** The connection is gone and with it all that stood or was asked for. */
  lost(): void {
    this.#standing.clear();
    this.#dirty.clear();
    for (const topic of this.#handlers.keys()) this.#dirty.add(topic);
  }
}
