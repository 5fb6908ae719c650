/**
 * The bus only reduces latency (law 1). A message is a few ids, sent after the commit. Receivers
 * never trust it; it is only a reason to read. Losing every message may cost time, never
 * correctness. Implementations: redis, postgres, memory; all pass `test/platform/bus/contract.ts`.
 *
 * A topic is a short string of [a-z0-9:_-], at most 100 characters, for example `instance:<run>` or
 * `task:<id>`. An instance subscribes only to topics that concern it. A message is a JSON object of
 * at most 4,000 bytes encoded. Messages of one publisher on one topic arrive in order; equal
 * messages sent together may arrive as one. A publisher receives its own messages.
 */
export type BusMessage = Record<string, unknown>;

export interface Subscription {
  /** Ends the subscription. Further calls do nothing. */
  close(): void;
}

export interface Bus {
  /** 'redis', 'postgres' or 'memory', for display. */
  readonly kind: string;
  /**
   * Starts to connect, and retries without end, with jitter. Resolves at the first connection, or
   * after 1 s without one: an instance starts unhealthy if its bus is unreachable. Never rejects.
   */
  start(): Promise<void>;
  stop(): Promise<void>;
  /**
   * Sends without waiting; never throws. A message that cannot be sent (not connected, 1,000 in
   * flight, too large) is dropped and counted.
   */
  publish(topic: string, message: BusMessage): void;
  /**
   * Delivers messages of `topic` from the time `onReady` is called. `onReady` is called when the
   * server has confirmed the subscription, and again after each reconnect; the caller must then
   * read what it may have missed. Many subscriptions of one topic share one subscription at the
   * server. Handlers must not throw; if one does, that is logged and the others still run. Neither
   * callback is called within `subscribe`.
   * @throws TypeError when `topic` is not a valid topic, which is a mistake of the caller
   */
  subscribe(topic: string, onMessage: (message: BusMessage) => void, onReady?: () => void): Subscription;
  /**
   * False while not connected, or while three of its own beats in a row did not come back. Slow
   * polls then run more often.
   */
  isHealthy(): boolean;
  /** Called at each change of `isHealthy()`. */
  onHealthChange(listener: (healthy: boolean) => void): Subscription;
  /** Counters for /metrics. */
  stats(): BusStats;
}

export interface BusStats {
  /** Messages that the server accepted. */
  published: number;
  /** Messages received on a subscribed topic. */
  received: number;
  /** Messages not sent, and malformed or oversized messages received. */
  dropped: number;
  /** How often the connection was established again after a loss. */
  reconnects: number;
  /** Topics subscribed now; several subscriptions of one topic count once. */
  topics: number;
}
