/**
 * What a connection uses of its WebSocket and of the stream below it. `ws` and Node provide the
 * real ones; the simulation has its own.
 */
import type { RawData } from 'ws';

export interface AgentSocket {
  /** Bytes that the network has not yet taken. */
  readonly bufferedAmount: number;
  /** A state of WebSocket, such as WebSocket.OPEN. */
  readonly readyState: number;
  on(event: 'message', listener: (data: RawData, isBinary: boolean) => void): unknown;
  on(event: 'pong', listener: (data: Buffer) => void): unknown;
  on(event: 'error', listener: (error: Error) => void): unknown;
  on(event: 'close', listener: () => void): unknown;
  send(text: string): void;
  ping(text: string): void;
  pause(): void;
  resume(): void;
  /** Sends a close frame and waits for the answer. */
  close(code: number, reason: string): void;
  /** Ends the connection immediately, without a close frame. */
  terminate(): void;
}

export interface AgentStream {
  readonly remoteAddress?: string | undefined;
  /** All bytes that were written, with those that wait. */
  readonly bytesWritten: number;
  /** Emitted for all bytes that arrive, of any kind. */
  on(event: 'data', listener: (chunk: Buffer) => void): unknown;
  write(text: string, encoding: 'latin1'): unknown;
}
