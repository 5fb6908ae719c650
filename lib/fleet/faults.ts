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
import { messageOf } from '../errors.ts';
import type { Clock } from '../ports/clock.ts';
import type { DialQueue } from './dial-queue.ts';

export class Wire {
  readonly #clock: Clock;
  readonly #dials: DialQueue;
  readonly #lines = new Map<WebSocket, { held: (() => void)[] }>();
  #frozen = false;
  #delayMs = 0;

  constructor(clock: Clock, dials: DialQueue) {
    this.#clock = clock;
    this.#dials = dials;
  }

  readonly dial: Dial = (target, events) => {
    let socket: LinkSocket | undefined;
    const turn = this.#dials.enter(() => {
      socket = this.#dialNow(target, events);
    });
    return {
      get bufferedBytes() {
        return socket?.bufferedBytes ?? 0;
      },
      send: (text) => socket?.send(text),
      close: (code, reason) => (socket ? socket.close(code, reason) : turn.leave()),
    };
  };

  /** Neither reads nor writes, not even an answer to a ping. */
  freeze(): void {
    this.#frozen = true;
    for (const socket of this.#lines.keys()) socket.pause();
  }

  thaw(): void {
    this.#frozen = false;
    for (const [socket, { held }] of this.#lines) {
      socket.resume();
      for (const send of held.splice(0)) send();
    }
  }

  /** Frames take this long, both ways. */
  slow(delayMs: number): void {
    this.#delayMs = delayMs;
  }

  cut(): void {
    for (const socket of this.#lines.keys()) socket.terminate();
  }

  #dialNow(target: DialTarget, events: LinkSocketEvents): LinkSocket | undefined {
    if (this.#frozen) return void events.closed('frozen');
    try {
      const socket = this.#open(target, events);
      events.begun();
      return socket;
    } catch (error) {
      return void events.closed(messageOf(error));
    }
  }

  #open(target: DialTarget, events: LinkSocketEvents): LinkSocket {
    const socket = openWebSocket(target);
    const line = { held: [] as (() => void)[] };
    this.#lines.set(socket, line);
    socket.on('close', () => this.#lines.delete(socket));
    const inner = linkSocketOf(
      socket,
      {
        ...events,
        received: (text) => (this.#delayMs === 0 ? events.received(text) : this.#later(() => events.received(text))),
      },
      this.#clock,
    );
    const send = (text: string) => (this.#delayMs === 0 ? inner.send(text) : this.#later(() => inner.send(text)));
    return {
      get bufferedBytes() {
        return inner.bufferedBytes;
      },
      send: (text) => (this.#frozen ? void line.held.push(() => send(text)) : send(text)),
      close: (code, reason) => inner.close(code, reason),
    };
  }

  #later(act: () => void): void {
    this.#clock.after(this.#delayMs, act);
  }
}
