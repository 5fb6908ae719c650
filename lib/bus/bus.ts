/**
 * The bus makes things prompt and nothing more (law 1): a message is a few ids, sent after the commit, never believed,
 * only a reason to read. Losing every message may cost time, never truth. Implementations: redis, postgres, memory;
 * all pass `test/bus/contract.ts`.
 *
 * A topic is a short string of [a-z0-9:_-], at most 100 characters, for example `instance:<run>` or `task:<id>`; an
 * instance subscribes to those that concern it only. A message is a JSON object of at most 4,000 bytes encoded. Messages
 * of one publisher on one topic arrive in order; equal ones sent together may arrive as one. A publisher hears itself.
 */
export type BusMessage = Record<string, unknown>;

export interface Subscription {
  /** Ends it; harmless twice. */
  close(): void;
}

export interface Bus {
  /** 'redis', 'postgres' or 'memory', for people. */
  readonly kind: string;
  /**
   * Begins to connect and goes on for ever, with jitter. Resolves once the first connection stands, or after 1 s without
   * one: an instance starts, unhealthy, while its bus is away. Never rejects.
   */
  start(): Promise<void>;
  stop(): Promise<void>;
  /** Sends without waiting; never throws. What cannot be sent (away, 1,000 in flight, too large) is dropped and counted. */
  publish(topic: string, message: BusMessage): void;
  /**
   * Hears `topic` from the time `onReady` is called (once the server confirmed it, and again after each reconnect:
   * then whatever was missed must be read). Many subscriptions of one topic share one at the server.
   * Handlers must not throw; one that does is logged and the others still run. Neither is called within `subscribe`.
   * @throws TypeError when `topic` is not one: a caller's mistake.
   */
  subscribe(topic: string, onMessage: (message: BusMessage) => void, onReady?: () => void): Subscription;
  /** False while not connected or while three own beats in a row did not come back: slow polls then run faster. */
  isHealthy(): boolean;
  /** Called at each change of `isHealthy()`. */
  onHealthChange(listener: (healthy: boolean) => void): Subscription;
  /** Counters for /metrics. */
  stats(): BusStats;
}

export interface BusStats {
  /** Messages that the server took. */
  published: number;
  /** Messages heard on a subscribed topic. */
  received: number;
  /** Messages not sent, or heard but malformed or oversized. */
  dropped: number;
  /** Times the connection stood again after it had been lost. */
  reconnects: number;
  /** Topics subscribed now, however many subscriptions each has. */
  topics: number;
}
