/**
 * The seam between the bus that all callers know (`line-bus.ts`) and the server that carries it (redis, postgres, the
 * memory hub): one life of a connection. A line is opened once and lost once; for a reconnect another one is opened.
 */
export interface LineEvents {
  /** A payload came in for `topic`, as it is. */
  onPayload(topic: string, payload: string): void;
  /** The line is dead and stays so. May come before `openLine` resolves; at most one counts. */
  onLost(cause: Error): void;
}

export interface Line {
  /** Resolves when the server has confirmed all of it. One call at a time. A rejection means the line is of no use. */
  change(hear: readonly string[], unhear: readonly string[]): Promise<void>;
  /** Resolves when the server has taken it; rejects when it has not or the line was lost. Sends in the order of calls. */
  send(topic: string, payload: string): Promise<void>;
  /** Drops the connection without waiting for the server; what is in flight rejects. Harmless twice. */
  close(): void;
}

/** Connects. When `signal` aborts, everything half open is dropped and the promise rejects. */
export type OpenLine = (events: LineEvents, signal: AbortSignal) => Promise<Line>;

/** A line that has yet to connect. */
export interface UnopenedLine extends Line {
  open(): Promise<void>;
}

/** Opens what `make` makes; drops it when that fails or takes until the signal aborts. */
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
