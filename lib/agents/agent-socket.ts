/**
 * What a connection uses of its WebSocket and of the stream below it. Those of `ws` and Node are the real ones; the
 * simulation has its own.
 */
import type { RawData } from 'ws';

export interface AgentSocket {
  /** Bytes that the network has not taken yet. */
  readonly bufferedAmount: number;
  /** As WebSocket.OPEN and its like. */
  readonly readyState: number;
  on(event: 'message', listener: (data: RawData, isBinary: boolean) => void): unknown;
  on(event: 'pong', listener: (data: Buffer) => void): unknown;
  on(event: 'error', listener: (error: Error) => void): unknown;
  on(event: 'close', listener: () => void): unknown;
  send(text: string): void;
  ping(text: string): void;
  pause(): void;
  resume(): void;
  /** Says goodbye and waits for the answer. */
  close(code: number, reason: string): void;
  /** At once, without a word. */
  terminate(): void;
}

export interface AgentStream {
  readonly remoteAddress?: string | undefined;
  /** Hears all bytes that come, whatever they are. */
  on(event: 'data', listener: (chunk: Buffer) => void): unknown;
  write(text: string, encoding: 'latin1'): unknown;
}
