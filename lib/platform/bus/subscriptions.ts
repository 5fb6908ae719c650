/**
 * The topics that this process wants to receive, and those that the server has confirmed. Data for
 * `connection-bus.ts`, which takes the difference and sends it to the server, one change at a time,
 * however often callers subscribe.
 *
 *      subscribe               takeChange                 confirm
 *    ───────────▶ wanted ────────────────▶ asked ──────────────────▶ subscribed ──┐ subscribe:
 *                   ▲                        │ lost                  │  ▲         │ ready immediately
 *                   └────────────────────────┴───────────────────────┘  └─────────┘
 *
 * After the last handler is removed, takeChange lists the topic in `unsubscribe` if it is asked or
 * subscribed. No I/O and no callbacks here: methods return the handlers to call.
 */
import type { BusMessage } from './bus.ts';

export interface TopicHandler {
  readonly topic: string;
  readonly onMessage: (message: BusMessage) => void;
  readonly onReady: (() => void) | undefined;
}

/** Topics to subscribe to and to unsubscribe from. */
export interface TopicChange {
  subscribe: string[];
  unsubscribe: string[];
}

export class Subscriptions {
  readonly #handlers = new Map<string, Set<TopicHandler>>();
  readonly #subscribed = new Set<string>();
  /** Topics whose wanted and subscribed states may differ. */
  readonly #dirty = new Set<string>();

  get topicCount(): number {
    return this.#handlers.size;
  }

  /**
   * Adds a handler. Returns true when its topic is already subscribed, which makes the handler
   * ready now.
   */
  add(handler: TopicHandler): boolean {
    const handlers = this.#handlers.get(handler.topic);
    if (handlers) handlers.add(handler);
    else this.#handlers.set(handler.topic, new Set([handler]));
    const isSubscribed = this.#subscribed.has(handler.topic);
    if (!isSubscribed) this.#dirty.add(handler.topic);
    return isSubscribed;
  }

  /** Removes a handler. Further calls do nothing. */
  remove(handler: TopicHandler): void {
    const handlers = this.#handlers.get(handler.topic);
    if (!handlers?.delete(handler) || handlers.size > 0) return;
    this.#handlers.delete(handler.topic);
    this.#dirty.add(handler.topic);
  }

  has(handler: TopicHandler): boolean {
    return this.#handlers.get(handler.topic)?.has(handler) ?? false;
  }

  /** The current handlers of `topic`; a copy, because handlers subscribe and close. */
  handlersOf(topic: string): TopicHandler[] {
    return [...(this.#handlers.get(topic) ?? [])];
  }

  /**
   * Returns the difference between wanted and subscribed topics, for at most `limit` topics;
   * undefined when there is none. A topic in `unsubscribe` is no longer subscribed from
   * then on: a caller that subscribes to it meanwhile waits for a new confirmation.
   */
  takeChange(limit: number): TopicChange | undefined {
    const change: TopicChange = { subscribe: [], unsubscribe: [] };
    for (const topic of this.#dirty) {
      if (change.subscribe.length + change.unsubscribe.length >= limit) break;
      this.#dirty.delete(topic);
      const wanted = this.#handlers.has(topic);
      if (wanted && !this.#subscribed.has(topic)) change.subscribe.push(topic);
      if (!wanted && this.#subscribed.delete(topic)) change.unsubscribe.push(topic);
    }
    return change.subscribe.length + change.unsubscribe.length > 0 ? change : undefined;
  }

  /**
   * Records that the server carried out `change`. Returns the handlers that are ready from now on.
   */
  confirm(change: TopicChange): TopicHandler[] {
    const ready: TopicHandler[] = [];
    for (const topic of change.subscribe) {
      this.#subscribed.add(topic);
      ready.push(...this.handlersOf(topic));
    }
    return ready;
  }

  /** The connection is lost, and with it everything that was subscribed or asked. */
  lost(): void {
    this.#subscribed.clear();
    this.#dirty.clear();
    for (const topic of this.#handlers.keys()) this.#dirty.add(topic);
  }
}
