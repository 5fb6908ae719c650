/**
 * What a fleet can do to an agent's connection. `Wire` stands between one agent's link and its sockets and can hold
 * frames back both ways (as a frozen process or a lost network does, TCP still standing), delay them, or cut the sockets.
 */
import type { WebSocket } from 'ws';
import {
  type Dial,
  type DialTarget,
  type LinkSocket,
  type LinkSocketEvents,
  linkSocketOf,
  openWebSocket,
} from '../cn-agent/link-socket.ts';
import type { Clock } from '../ports/clock.ts';

export class Wire {
  readonly #clock: Clock;
  readonly #open = new Map<WebSocket, { held: (() => void)[] }>();
  #frozen = false;
  #delayMs = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  readonly dial: Dial = (target, events) => {
    if (this.#frozen) return this.#unreachable(events);
    return this.#dial(target, events);
  };

  /** Neither reads nor writes, not even an answer to a ping. */
  freeze(): void {
    this.#frozen = true;
    for (const socket of this.#open.keys()) socket.pause();
  }

  thaw(): void {
    this.#frozen = false;
    for (const [socket, { held }] of this.#open) {
      socket.resume();
      for (const send of held.splice(0)) send();
    }
  }

  /** Frames take this long, both ways. */
  slow(delayMs: number): void {
    this.#delayMs = delayMs;
  }

  cut(): void {
    for (const socket of this.#open.keys()) socket.terminate();
  }

  #dial(target: DialTarget, events: LinkSocketEvents): LinkSocket {
    const socket = openWebSocket(target);
    const line = { held: [] as (() => void)[] };
    this.#open.set(socket, line);
    socket.on('close', () => this.#open.delete(socket));
    const inner = linkSocketOf(
      socket,
      { ...events, received: (text) => this.#later(() => events.received(text)) },
      this.#clock,
    );
    const send = (text: string) => this.#later(() => inner.send(text));
    return {
      get bytesRead() {
        return inner.bytesRead;
      },
      get bufferedBytes() {
        return inner.bufferedBytes;
      },
      send: (text) => (this.#frozen ? void line.held.push(() => send(text)) : send(text)),
      close: (code, reason) => inner.close(code, reason),
    };
  }

  #later(act: () => void): void {
    if (this.#delayMs === 0) act();
    else this.#clock.after(this.#delayMs, act);
  }

  #unreachable(events: LinkSocketEvents): LinkSocket {
    this.#clock.after(0, () => events.closed('frozen'));
    return { bytesRead: 0, bufferedBytes: 0, send: () => undefined, close: () => undefined };
  }
}
