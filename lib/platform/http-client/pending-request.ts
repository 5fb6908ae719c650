/**
 * One request and its answer, as undici reports them. The peer is not trusted: the head is
 * bounded in bytes and time, and the body is read no faster than its reader takes it. Created by
 * `http-client.ts`.
 *
 *     waiting ──▶ sent ──▶ answering ──▶ ended
 *     at any moment: failed
 */
import type { Dispatcher } from 'undici';
import type { Clock, Timer } from '../time/clock.ts';
import { describeHttpFailure, HttpError, type HttpFailureKind } from './http-error.ts';

type HttpHeaders = Readonly<Record<string, string | string[] | undefined>>;

interface BodyLimits {
  /** Time limit between two pieces of the body. */
  silenceMs?: number;
  /** Time limit from now to the end of the body. */
  withinMs?: number;
}

/** The beginning of an answer. Its body must be read or dropped. */
export interface HttpAnswer {
  readonly status: number;
  /** The first value of a header, by its name in lower case. */
  header(name: string): string | undefined;
  /** Yields the body. Leaving the loop closes the connection. @throws HttpError */
  pieces(limits?: BodyLimits): AsyncGenerator<Buffer>;
  /** Resolves to the body. @throws HttpError */
  text(limits: BodyLimits & { maxBytes: number }): Promise<string>;
  /** Closes the connection unless the answer is complete. */
  drop(): void;
}

interface PendingRequestDeps {
  clock: Clock;
  /** The name of the other side in errors. */
  target: string;
  /** Time limit until the request is sent. */
  connectMs: number;
  /** Time limit from the sent request to the head of the answer. */
  headMs: number | undefined;
  /** Time limit from the beginning to the end of the body. */
  totalMs: number | undefined;
  signal: AbortSignal | undefined;
  /** Called once: the answer is complete, or the request has failed. */
  onOver(failure: HttpError | undefined): void;
}

/** More is not read from the connection until the reader has taken what there is. */
const MAX_WAITING_BYTES = 64 * 1024;
/** Answers of status 1xx before the final one. */
const MAX_INTERIM = 8;

export class PendingRequest implements Dispatcher.DispatchHandler, HttpAnswer {
  status = 0;
  /** Whether the other side may have read the request. */
  wasSent = false;
  isOver = false;
  readonly #deps: PendingRequestDeps;
  readonly #head = Promise.withResolvers<HttpAnswer>();
  readonly #onAbort = () => this.#fail('given-up', 'given up', this.#deps.signal?.reason);
  #headers: HttpHeaders = {};
  #controller: Dispatcher.DispatchController | undefined;
  #phaseTimer: Timer | undefined;
  #totalTimer: Timer | undefined;
  #interim = 0;
  #waiting: Buffer[] = [];
  #waitingBytes = 0;
  #failure: HttpError | undefined;
  #wake: () => void = () => undefined;

  constructor(deps: PendingRequestDeps) {
    this.#deps = deps;
    const { connectMs, totalMs, signal } = deps;
    this.#phaseTimer = this.#after(connectMs, `no connection within ${connectMs} ms`);
    if (totalMs !== undefined) this.#totalTimer = this.#after(totalMs, `no answer within ${totalMs} ms`);
    signal?.addEventListener('abort', this.#onAbort, { once: true });
  }

  /** The head of the answer. @throws HttpError */
  get answer(): Promise<HttpAnswer> {
    return this.#head.promise;
  }

  header(name: string): string | undefined {
    const value = this.#headers[name];
    return Array.isArray(value) ? value[0] : value;
  }

  async *pieces({ silenceMs, withinMs }: BodyLimits = {}): AsyncGenerator<Buffer> {
    const whole = withinMs === undefined ? undefined : this.#after(withinMs, `no answer within ${withinMs} ms`);
    try {
      for (;;) {
        const pieces = this.#waiting;
        if (pieces.length > 0) {
          this.#waiting = [];
          this.#waitingBytes = 0;
          this.#controller?.resume();
          // One piece for many small ones, which would take much more memory than their bytes.
          yield pieces.length === 1 ? (pieces[0] as Buffer) : Buffer.concat(pieces);
        } else if (this.#failure !== undefined) throw this.#failure;
        else if (this.isOver) return;
        else await this.#more(silenceMs);
      }
    } finally {
      whole?.cancel();
      this.drop();
    }
  }

  async text({ maxBytes, ...limits }: BodyLimits & { maxBytes: number }): Promise<string> {
    const pieces: Buffer[] = [];
    let bytes = 0;
    for await (const piece of this.pieces(limits)) {
      bytes += piece.length;
      if (bytes > maxBytes) throw this.#error('too-large', `the answer is larger than ${maxBytes} bytes`);
      pieces.push(piece);
    }
    return Buffer.concat(pieces).toString('utf8');
  }

  drop(): void {
    this.#fail('given-up', 'its answer was dropped');
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.wasSent = true;
    this.#controller = controller;
    this.#phaseTimer?.cancel();
    const { headMs } = this.#deps;
    if (headMs !== undefined) this.#phaseTimer = this.#after(headMs, `no answer within ${headMs} ms`);
  }

  onResponseStart(_controller: Dispatcher.DispatchController, status: number, headers: HttpHeaders): void {
    if (status < 200) {
      this.#interim += 1;
      if (this.#interim > MAX_INTERIM) this.#fail('unreadable', 'too many interim answers');
      return;
    }
    this.#phaseTimer?.cancel();
    this.status = status;
    this.#headers = headers;
    this.#head.resolve(this);
  }

  onResponseData(controller: Dispatcher.DispatchController, piece: Buffer): void {
    this.#waiting.push(piece);
    this.#waitingBytes += piece.length;
    if (this.#waitingBytes >= MAX_WAITING_BYTES) controller.pause();
    this.#wake();
  }

  onResponseEnd(): void {
    this.#end();
  }

  onResponseError(_controller: Dispatcher.DispatchController | undefined, error: Error): void {
    if (this.isOver) return;
    const { kind, reason } = describeHttpFailure(error, this.wasSent);
    this.#fail(kind, reason, error);
  }

  async #more(silenceMs: number | undefined): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#wake = resolve;
    const timer =
      silenceMs === undefined ? undefined : this.#after(silenceMs, `nothing came for ${silenceMs / 1000} s`);
    await promise;
    timer?.cancel();
  }

  #after(ms: number, reason: string): Timer {
    return this.#deps.clock.after(ms, () => this.#fail('timed-out', reason));
  }

  #fail(kind: HttpFailureKind, reason: string, cause?: unknown): void {
    if (this.isOver) return;
    this.#failure = this.#error(kind, reason, cause);
    this.#end();
    this.#head.reject(this.#failure);
  }

  #end(): void {
    this.isOver = true;
    this.#phaseTimer?.cancel();
    this.#totalTimer?.cancel();
    this.#deps.signal?.removeEventListener('abort', this.#onAbort);
    this.#wake();
    this.#deps.onOver(this.#failure);
  }

  #error(kind: HttpFailureKind, reason: string, cause?: unknown): HttpError {
    return new HttpError({ target: this.#deps.target, kind, reason, mayHaveArrived: this.wasSent, cause });
  }
}
