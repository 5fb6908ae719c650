/**
 * The seam between the bus that callers use (`connection-bus.ts`) and the server behind it (redis
 * or postgres). A connection is opened once and lost once; a reconnect opens another.
 */
export interface ConnectionEvents {
  /** A payload arrived for `topic`; it is not parsed yet. */
  onPayload(topic: string, payload: string): void;
  /**
   * The connection is lost for good. It may be called before `connect` resolves; only the first
   * call counts.
   */
  onLost(cause: Error): void;
}

export interface BusConnection {
  /**
   * Resolves when the server has confirmed the whole change. One call at a time. After a rejection
   * the connection is unusable.
   */
  change(subscribe: readonly string[], unsubscribe: readonly string[]): Promise<void>;
  /**
   * Resolves when the server has accepted the message; rejects when it has not or when the
   * connection was lost. Sends in the order of calls.
   */
  send(topic: string, payload: string): Promise<void>;
  /**
   * Drops the connection without waiting for the server; calls in flight reject. Further calls do
   * nothing.
   */
  close(): void;
}

/** Connects. When `signal` aborts, half-open connections are dropped and the promise rejects. */
export type Connect = (events: ConnectionEvents, signal: AbortSignal) => Promise<BusConnection>;

/** A connection that is not open yet. */
export interface PendingConnection extends BusConnection {
  open(): Promise<void>;
}

/** Opens what `make` creates. Drops it when opening fails or the signal aborts first. */
export function connector(make: (events: ConnectionEvents) => PendingConnection): Connect {
  return async (events, signal) => {
    signal.throwIfAborted();
    const connection = make(events);
    const abandon = () => connection.close();
    signal.addEventListener('abort', abandon, { once: true });
    try {
      await connection.open();
      return connection;
    } catch (err) {
      connection.close();
      throw signal.aborted ? signal.reason : err;
    } finally {
      signal.removeEventListener('abort', abandon);
    }
  };
}
