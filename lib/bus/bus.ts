/**
 * The bus makes things prompt and nothing more (law 1): a message is a few ids, sent after the commit, never believed,
 * only a reason to read. Losing every message may cost time, never truth. Implementations: redis, postgres, memory;
 * all pass `test/bus/contract.ts`.
 *
 * A topic is a short string of [a-z0-9:_-], at most 100 characters, for example `instance:<run>` or `task:<id>`; an
 * instance subscribes to those that concern it only. A message is a JSON object of at most 4,000 bytes encoded.
 */
export type BusMessage = Record<string, unknown>;

export interface Subscription {
  /** Ends it; harmless twice. */
  close(): void;
}

export interface Bus {
  /** 'redis', 'postgres' or 'memory', for people. */
  readonly kind: string;
  /** Resolves when the first connection stands, or rejects after its connect timeout; reconnects by itself afterwards. */
  start(): Promise<void>;
  stop(): Promise<void>;
  /** Sends without waiting; never throws. What cannot be sent (away, queue full, too large) is dropped and counted. */
  publish(topic: string, message: BusMessage): void;
  /**
   * Hears `topic` from the time `onReady` is called (once the server confirmed it, and again after each reconnect:
   * then whatever was missed must be read). Many subscriptions of one topic share one at the server.
   * Handlers must not throw; one that does is logged and the others still run.
   */
  subscribe(topic: string, onMessage: (message: BusMessage) => void, onReady?: () => void): Subscription;
  /** False while three own beats in a row did not come back: slow polls then run at their faster period. */
  isHealthy(): boolean;
  /** Called at each change of `isHealthy()`. */
  onHealthChange(listener: (healthy: boolean) => void): Subscription;
  /** Counters for /metrics. */
  stats(): BusStats;
}

export interface BusStats {
  published: number;
  received: number;
  dropped: number;
  reconnects: number;
  topics: number;
}
