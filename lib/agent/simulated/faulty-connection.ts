/**
 * Simulates faults of an agent's connections. `FaultyConnection` sits between one agent's link and
 * its sockets. It can hold back frames in both directions (as a frozen process or a lost network
 * does, while TCP stays connected), delay them, or cut the sockets.
 */
import type { WebSocket } from 'ws';
import { messageOf } from '../../platform/errors.ts';
import type { Clock } from '../../platform/time/clock.ts';
import { type AgentCredentials, NO_CREDENTIALS } from '../link/credentials.ts';
import {
  createLinkSocket,
  type Dial,
  type DialTarget,
  type LinkSocket,
  type LinkSocketEvents,
  openWebSocket,
} from '../link/link-socket.ts';
import type { DialQueue } from './dial-queue.ts';

export class FaultyConnection {
  readonly dial: Dial;
  readonly #lines = new Set<Line>();
  readonly #state: FaultState = { isFrozen: false, delayMs: 0 };

  constructor(clock: Clock, dials: DialQueue, credentials = NO_CREDENTIALS) {
    const deps = { clock, dials, credentials, state: this.#state, lines: this.#lines };
    this.dial = (target, events) => new Line(deps, target, events);
  }

  /** The agent neither reads nor writes, and does not answer pings. */
  freeze(): void {
    this.#state.isFrozen = true;
    for (const line of this.#lines) line.freeze();
  }

  thaw(): void {
    this.#state.isFrozen = false;
    for (const line of this.#lines) line.thaw();
  }

  /** Delays every frame by this long, in both directions. */
  slow(delayMs: number): void {
    this.#state.delayMs = delayMs;
  }

  cut(): void {
    for (const line of this.#lines) line.cut();
  }
}

interface FaultState {
  isFrozen: boolean;
  delayMs: number;
}

interface LineDeps {
  clock: Clock;
  dials: DialQueue;
  credentials: AgentCredentials;
  state: FaultState;
  /** Lines that are connected or about to connect. */
  lines: Set<Line>;
}

/** One connection as the agent's link sees it, including the wait in the dial queue. */
class Line implements LinkSocket {
  readonly #deps: LineDeps;
  readonly #turn: { leave(): void };
  #socket: WebSocket | undefined;
  #link: LinkSocket | undefined;
  /** Text sent while frozen. */
  #held: string[] | undefined;

  constructor(deps: LineDeps, target: DialTarget, events: LinkSocketEvents) {
    this.#deps = deps;
    this.#turn = deps.dials.enter(() => this.#dial(target, events));
  }

  get bufferedBytes(): number {
    return this.#link?.bufferedBytes ?? 0;
  }

  consumeValues(values: number): void {
    this.#link?.consumeValues(values);
  }

  send(text: string): void {
    const { isFrozen, delayMs } = this.#deps.state;
    if (isFrozen) this.#hold(text);
    else if (delayMs === 0) this.#link?.send(text);
    else this.#later(() => this.#link?.send(text));
  }

  close(code: number, reason: string): void {
    if (this.#link) this.#link.close(code, reason);
    else this.#turn.leave();
  }

  freeze(): void {
    this.#socket?.pause();
  }

  thaw(): void {
    this.#socket?.resume();
    const held = this.#held ?? [];
    this.#held = undefined;
    for (const text of held) this.send(text);
  }

  cut(): void {
    this.#socket?.terminate();
  }

  #hold(text: string): void {
    this.#held ??= [];
    this.#held.push(text);
  }

  #dial(target: DialTarget, events: LinkSocketEvents): void {
    if (this.#deps.state.isFrozen) return events.closed('frozen');
    try {
      this.#open(target, events);
      events.begun();
    } catch (error) {
      events.closed(messageOf(error));
    }
  }

  #open(target: DialTarget, events: LinkSocketEvents): void {
    const { clock, state, lines } = this.#deps;
    const opened = openWebSocket(target, this.#deps.credentials);
    const { socket } = opened;
    this.#socket = socket;
    lines.add(this);
    socket.on('close', () => lines.delete(this));
    const received = (text: string) =>
      state.delayMs === 0 ? events.received(text) : this.#later(() => events.received(text));
    this.#link = createLinkSocket(opened, { ...events, received }, clock);
  }

  #later(act: () => void): void {
    const { clock, state } = this.#deps;
    clock.after(state.delayMs, act);
  }
}
