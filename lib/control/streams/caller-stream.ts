/**
 * One stream at its instance: the caller's end, and the agent's WebSocket once it has joined.
 * Messages pass unchanged; each end is read only as fast as the other one takes.
 */
import type { WebSocket } from 'ws';
import type { Clock, Timer } from '../../platform/time/clock.ts';
import {
  CHANNELS,
  channelIn,
  JOIN_WITHIN_MS,
  type StreamStatus,
  streamMessage,
} from '../../protocol/streams/stream.ts';
import { CLOSE_WITHIN_MS, StreamSocket, type StreamSocketEvents } from '../../protocol/streams/stream-socket.ts';
import { type StreamEffect, type StreamEvent, type StreamState, stepStream } from './stream-state.ts';

/** The caller's end: a WebSocket, or another connection that passes on the same messages. */
export type CallerEnd = Pick<StreamSocket, 'send' | 'pause' | 'resume' | 'closeWhenSent' | 'refuse' | 'terminate'>;

interface CallerStreamDeps {
  clock: Clock;
  /** Whose agent may join. */
  serverUuid: string;
  /** Nobody can join any more. */
  onEnded(): void;
  /** Both connections are closed. */
  onClosed(): void;
}

/** RFC 6455, section 7.4.1. */
const NORMAL = 1000;
const GOING_AWAY = 1001;
/** What the instance keeps for an agent that has not joined. */
const MAX_EARLY_BYTES = 64 * 1024;
const MAX_EARLY_MESSAGES = 100;

export class CallerStream {
  readonly serverUuid: string;
  readonly #deps: CallerStreamDeps;
  readonly #caller: CallerEnd;
  /** While it waits; and while it closes. */
  #timer: Timer;
  #agent: StreamSocket | undefined;
  #state: StreamState = 'waiting';
  #connections = 1;
  #isOver = false;
  readonly #early: Buffer[] = [];
  #earlyBytes = 0;

  constructor(openCaller: (events: StreamSocketEvents) => CallerEnd, deps: CallerStreamDeps) {
    this.#deps = deps;
    this.serverUuid = deps.serverUuid;
    this.#caller = openCaller({
      message: (message, isBinary) => this.#fromCaller(message, isBinary),
      drained: () => this.#agent?.resume(),
      closed: () => this.#closed({ type: 'caller closed' }),
    });
    this.#timer = deps.clock.after(JOIN_WITHIN_MS, () => this.#on({ type: 'late' }));
  }

  get isWaiting(): boolean {
    return this.#state === 'waiting';
  }

  /** Call only while it `isWaiting`. */
  join(agent: WebSocket): void {
    this.#connections += 1;
    this.#agent = new StreamSocket(agent, this.#deps.clock, {
      message: (message, isBinary) => this.#fromAgent(message, isBinary),
      drained: () => this.#caller.resume(),
      closed: () => this.#closed({ type: 'agent closed' }),
    });
    this.#on({ type: 'joined' });
    for (const message of this.#early.splice(0)) this.#agent.send(message);
    this.#caller.resume();
  }

  /** Ends it for a reason of this instance. */
  cut(code: string, message: string): void {
    this.#on({ type: 'cut', code, message });
  }

  /** Ends both connections immediately, also if they have not taken what was sent. */
  terminate(): void {
    this.#caller.terminate();
    this.#agent?.terminate();
    this.#over();
  }

  #fromCaller(message: Buffer, isBinary: boolean): void {
    if (this.#state === 'ended') return;
    if (!isBinary) {
      this.#caller.refuse('messages must be binary');
      return this.#on({ type: 'caller closed' });
    }
    if (this.#agent === undefined) this.#keep(message);
    else if (!this.#agent.send(message)) this.#caller.pause();
  }

  /** The agent has not joined. What does not fit waits in the network. */
  #keep(message: Buffer): void {
    this.#early.push(message);
    this.#earlyBytes += message.length;
    if (this.#earlyBytes > MAX_EARLY_BYTES || this.#early.length > MAX_EARLY_MESSAGES) this.#caller.pause();
  }

  #fromAgent(message: Buffer, isBinary: boolean): void {
    if (!isBinary) return this.#agent?.refuse('messages must be binary');
    if (channelIn(message) === CHANNELS.status) this.#on({ type: 'status' });
    if (!this.#caller.send(message)) this.#agent?.pause();
  }

  #closed(event: StreamEvent): void {
    this.#on(event);
    this.#connections -= 1;
    if (this.#connections === 0) this.#over();
  }

  #over(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#timer.cancel();
    this.#deps.onClosed();
  }

  #on(event: StreamEvent): void {
    const before = this.#state;
    const { state, effects } = stepStream(before, event);
    if (state === before) return;
    this.#state = state;
    if (this.#state !== 'waiting') this.#timer.cancel();
    for (const effect of effects) this.#carryOut(effect);
    if (this.#state !== 'ended') return;
    this.#deps.onEnded();
    this.#timer = this.#deps.clock.after(CLOSE_WITHIN_MS, () => this.terminate());
  }

  #carryOut(effect: StreamEffect): void {
    switch (effect.do) {
      case 'tell': {
        const status: StreamStatus = { error: { code: effect.code, message: effect.message } };
        this.#caller.send(streamMessage(CHANNELS.status, JSON.stringify(status)));
        return this.#caller.closeWhenSent(GOING_AWAY, effect.code);
      }
      case 'close caller':
        return this.#caller.closeWhenSent(NORMAL, 'ended');
      case 'close agent':
        // What it has not taken is of no use any more, and it may never take it.
        return this.#agent?.leave(GOING_AWAY, 'the caller has left');
      default:
        return effect satisfies never;
    }
  }
}
