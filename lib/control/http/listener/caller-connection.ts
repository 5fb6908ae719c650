/**
 * A caller's connection: its unanswered requests, and how it ends. Created by `open-exchanges.ts`
 * with the first request.
 *
 *     open ──end(), refuseUnread(), an answer with `Connection: close`──▶ ending ──▶ closed
 *
 * While it is ending, no request that arrives is carried out (RFC 9112, section 9.6). The answers
 * to earlier requests are still sent, in order, and the refusal after them.
 *
 * Only safe requests run in parallel (RFC 9112, section 9.3.2): any other begins when all before it
 * are answered, and nothing begins behind it before its own answer.
 */
import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { CnapiError } from '../../../platform/errors.ts';
import type { Clock, Timer } from '../../../platform/time/clock.ts';
import { errorAnswer } from '../answer/error-mapping.ts';
import type { Exchange } from '../answer/exchange.ts';
import { answerAndClose } from '../answer/raw-answer.ts';
import { SLOW_READER_MS } from '../answer/write-bounded.ts';
import { UnreadableRequestError } from '../http-errors.ts';

/**
 * Far above what any caller sends ahead. With more, answers queue behind a wait, Node stops
 * reading, and a disconnect goes unnoticed.
 */
const MAX_UNANSWERED = 16;
/** Longer than the longest wait, so its answer is sent before the cut. */
const SILENT_SOCKET_MS = 3_660_000;

/** The caller sent bytes after a request with `Connection: close`; they are ignored. */
const AFTER_CLOSE = 'HPE_CLOSED_CONNECTION';

export class CallerConnection {
  readonly #socket: Socket;
  readonly #clock: Clock;
  /** Requests without an answer, in order of arrival. Answers are sent in the same order. */
  readonly #unanswered = new Map<Exchange, ServerResponse>();
  /** Called after each answer: each function checks whether its request may begin. */
  readonly #turns = new Set<() => void>();
  #isEnding = false;
  #ignoresInput = false;
  /** Sent when the requests before it are answered. */
  #refusal: CnapiError | undefined;
  #timer: Timer | undefined;

  constructor(socket: Socket, clock: Clock) {
    this.#socket = socket;
    this.#clock = clock;
    socket.once('end', () => {
      for (const exchange of this.#unanswered.keys()) exchange.callerEnded();
      if (this.#refusal !== undefined) this.#keepOpenForRefusal();
    });
    socket.once('close', () => {
      this.#timer?.cancel();
      // Node does not do this for queued answers if an upgrade or CONNECT came behind them.
      for (const response of this.#unanswered.values()) response.destroy();
    });
  }

  /** No request that arrives from now on is carried out. */
  get isEnding(): boolean {
    return this.#isEnding || !this.#socket.writable || [...this.#unanswered.values()].some(isLast);
  }

  /** Nothing more that arrives is parsed, not even the rest of a body. */
  get ignoresInput(): boolean {
    return this.#ignoresInput;
  }

  /** Nothing is to be sent before the answer to a request that arrives now. */
  get isFree(): boolean {
    return this.#unanswered.size === 0 && !this.isEnding;
  }

  /** False while others wait on this connection: Node would close it before their answers. */
  get mayCloseNext(): boolean {
    return this.#unanswered.size <= 1 && this.#refusal === undefined;
  }

  /** False if the caller has sent too many requests ahead; it is cut off. */
  add(exchange: Exchange, response: ServerResponse): boolean {
    if (this.#unanswered.size >= MAX_UNANSWERED) {
      this.#socket.destroy();
      return false;
    }
    // Not for all the server's sockets: a link would keep the timer without need.
    this.#socket.setTimeout(SILENT_SOCKET_MS);
    this.#unanswered.set(exchange, response);
    response.once('close', () => {
      this.#unanswered.delete(exchange);
      for (const check of this.#turns) check();
      this.#refuseInTurn();
    });
    return true;
  }

  /**
   * Resolves when this request may begin, or is aborted; undefined if it may begin immediately. If
   * the connection is no longer writable by then, the request must not be carried out.
   */
  turnOf(exchange: Exchange): Promise<void> | undefined {
    if (this.#mayBegin(exchange)) return undefined;
    return new Promise((resolve) => {
      const look = () => {
        if (!exchange.signal.aborted && !this.#mayBegin(exchange)) return;
        this.#turns.delete(look);
        exchange.signal.removeEventListener('abort', look);
        resolve();
      };
      this.#turns.add(look);
      exchange.signal.addEventListener('abort', look);
    });
  }

  #mayBegin(exchange: Exchange): boolean {
    for (const earlier of this.#unanswered.keys()) {
      if (earlier === exchange) return true;
      if (!isSafe(earlier) || !isSafe(exchange)) return false;
    }
    return true;
  }

  /**
   * The answer that was given last closes the connection. A caller that reads nothing is cut off.
   */
  end({ ignoreInput = false } = {}): void {
    this.#ignoresInput ||= ignoreInput;
    if (this.#isEnding) return;
    this.#isEnding = true;
    if (!this.#cutStreams() && !this.#socket.closed) this.#watch();
  }

  /**
   * Node could not parse what arrived. If that is the body of a request, its answer says so; else
   * a refusal follows the answers to the requests before it.
   */
  refuseUnread(error: NodeJS.ErrnoException): void {
    const { isEnding } = this;
    this.end();
    if (this.#socket.destroyed) return;
    const refusal = new UnreadableRequestError(error);
    const broken = [...this.#unanswered.keys()].find(({ request }) => !request.complete);
    if (broken !== undefined) broken.failBody(refusal);
    else if (!isEnding && error.code !== AFTER_CLOSE) {
      this.#refusal = refusal;
      this.#refuseInTurn();
    }
  }

  #refuseInTurn(): void {
    if (this.#refusal === undefined || !this.#socket.writable) return;
    const isEarlier = ({ request, isAnswered }: Exchange) => request.complete || isAnswered;
    if (![...this.#unanswered.keys()].some(isEarlier))
      answerAndClose(this.#socket, errorAnswer(this.#refusal), this.#clock);
  }

  /** When the caller ends its side, Node marks the last answer as the end of the connection. */
  #keepOpenForRefusal(): void {
    for (const response of this.#unanswered.values()) if (!isLast(response)) Object.assign(response, { _last: false });
  }

  /**
   * Closes the connection if the caller has read nothing of what could be sent for a whole period.
   * The work that produces an answer has time limits of its own.
   */
  #watch(sent?: Exchange | 'all'): void {
    this.#timer = this.#clock.after(SLOW_READER_MS, () => {
      if (this.#cutStreams()) return;
      const [next] = this.#unanswered;
      const sentNow = next === undefined ? 'all' : next[1].writableEnded ? next[0] : undefined;
      if (sentNow !== undefined && sentNow === sent) this.#socket.destroy();
      else this.#watch(sentNow);
    });
  }

  /** A stream has no end that an answer behind it could wait for. */
  #cutStreams(): boolean {
    const hasStream = [...this.#unanswered.keys()].some(({ isStream }) => isStream);
    if (hasStream) this.#socket.destroy();
    return hasStream;
  }
}

/** RFC 9110, section 9.2.1. */
function isSafe({ request }: Exchange): boolean {
  return request.method === 'GET' || request.method === 'HEAD';
}

/** The answer has begun, and the connection ends with it. */
function isLast(response: ServerResponse): boolean {
  const { headersSent, shouldKeepAlive } = response;
  return headersSent && (!shouldKeepAlive || response.getHeader('Connection') === 'close');
}
