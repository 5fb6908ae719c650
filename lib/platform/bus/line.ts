/**
 * The seam between the bus that callers use (`line-bus.ts`) and the server behind it (redis,
 * postgres, the memory hub). A line is one connection, opened once and lost once; a reconnect opens
 * another line.
 */
export interface LineEvents {
  /** A payload arrived for `topic`; it is not parsed yet. */
  onPayload(topic: string, payload: string): void;
  /**
   * The line is lost for good. It may be called before `openLine` resolves; only the first call
   * counts.
   */
  onLost(cause: Error): void;
}

export interface BusConnection {
  /**
   * Resolves when the server has confirmed the whole change. One call at a time. After a rejection
   * the line is unusable.
   */
  change(subscribe: readonly string[], unsubscribe: readonly string[]): Promise<void>;
  /**
   * Resolves when the server has accepted the message; rejects when it has not or when the line was
   * lost. Sends in the order of calls.
   */
  send(topic: string, payload: string): Promise<void>;
  /**
   * Drops the connection without waiting for the server; calls in flight reject. Further calls do
   * nothing.
   */
  close(): void;
}

/** Connects. When `signal` aborts, half-open connections are dropped and the promise rejects. */
export type OpenLine = (events: LineEvents, signal: AbortSignal) => Promise<BusConnection>;

/** A line that is not connected yet. */
export interface UnopenedLine extends BusConnection {
  open(): Promise<void>;
}

/** Opens the line that `make` creates. Drops it when opening fails or the signal aborts first. */
export function lineOpener(make: (events: LineEvents) => UnopenedLine): OpenLine {
  return async (events, signal) => {
    signal.throwIfAborted();
    const line = make(events);
    const abandon = () => line.close();
    signal.addEventListener('abort', abandon, { once: true });
    try {
      await line.open();
      return line;
    } catch (err) {
      line.close();
      throw signal.aborted ? signal.reason : err;
    } finally {
      signal.removeEventListener('abort', abandon);
    }
  };
}
