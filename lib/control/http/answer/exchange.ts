/**
 * One request and its answer. Owns the request's id, its time, the signal that its caller has
 * disconnected, and the writing of exactly one answer with the common headers. Created by the
 * listener; `send` never throws.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import os from 'node:os';
import { type CnapiError, messageOf } from '../../../platform/errors.ts';
import type { MemoryShare } from '../../../platform/limiting/memory-budget.ts';
import { cutForLog, type Logger } from '../../../platform/log.ts';
import type { Random } from '../../../platform/random.ts';
import type { Clock } from '../../../platform/time/clock.ts';
import type { LongRequestKind } from '../../../protocol/api/contract/contract.ts';
import { type Actor, ANONYMOUS_ACTOR, callerKey, OPEN_ACTOR } from '../../access/token.ts';
import type { BodySize } from '../limits/body-costs.ts';
import type { CallerLimits } from '../limits/caller-limits.ts';
import type { Route, RouteAnswer } from '../route.ts';
import { DroppedBody } from './dropped-body.ts';
import { errorAnswer, isDefect } from './error-mapping.ts';
import { sendEvents } from './event-stream.ts';
import { requestIdOf } from './request-id.ts';
import { cutOff, writeInSlices } from './write-bounded.ts';

interface ExchangeDeps {
  version: string;
  clock: Clock;
  random: Random;
  log: Logger;
  /** True: the answer tells the caller to stop using this connection. */
  isLeaving(): boolean;
  limits: CallerLimits;
}

/** The caller disconnected before the answer. In log and metrics only; the number is nginx's. */
export const CALLER_LEFT_STATUS = 499;

/**
 * Much shorter than connections are really kept (`listener.ts`). At the end of a drain, callers
 * that respect it have closed their idle connections.
 */
const KEEP_ALIVE = 'timeout=4';

/**
 * Answers up to this size (errors, health checks) need no answer memory: the kernel has buffers.
 */
const SMALL_ANSWER_BYTES = 16 * 1024;

export class Exchange {
  readonly request: IncomingMessage;
  readonly requestId: string;
  /** The caller, once authenticated. */
  actor: Actor | undefined;
  /** Who signed the headers, set before the body is read; see `bodyIsSigned`. */
  signer: Actor | undefined;
  readonly #response: ServerResponse;
  readonly #deps: ExchangeDeps;
  readonly #startedAt: number;
  readonly #address: string;
  readonly #abort = new AbortController();
  #log: Logger | undefined;
  #isBodyAccepted = false;
  /** The size charged for the body, without the part that was dropped. */
  readonly #charged: BodySize = { bytes: 0, values: 0 };
  readonly #droppedBody: DroppedBody;
  #share: MemoryShare | undefined;
  #leave: (() => void) | undefined;
  #kind: LongRequestKind | undefined;

  constructor(request: IncomingMessage, response: ServerResponse, deps: ExchangeDeps) {
    this.request = request;
    this.#response = response;
    this.#deps = deps;
    this.#startedAt = deps.clock.now();
    this.#address = request.socket.remoteAddress ?? '';
    this.requestId = requestIdOf(request) ?? deps.random.uuid();
    const charge = (bytes: number) => {
      this.#charge({ bytes, values: 0 });
      return this.isOverBodyLimit;
    };
    this.#droppedBody = new DroppedBody(request, { clock: deps.clock, charge });
    response.once('close', () => {
      this.#abort.abort();
      this.#share?.release();
      this.#leave?.();
    });
  }

  /** Identifies a caller for quotas. */
  get caller(): string | undefined {
    return this.#deps.limits.isOpen ? undefined : callerKey(this.actor, this.#address);
  }

  /**
   * Reserves memory before the answer is made. @throws AnswerMemoryFullError, AnswerShareFullError
   */
  reserve(bytes: number): void {
    this.#answerShare().hold(bytes);
  }

  /** The request will last. @throws CallerQuotaError */
  countLongRequest(kind: LongRequestKind): void {
    const leave = this.#deps.limits.quotas.take(kind, this.caller);
    if (this.#response.closed) leave();
    else this.#leave = leave;
    this.#kind = kind;
    if (this.request.socket.readableEnded) this.callerEnded();
  }

  get isStream(): boolean {
    return this.#kind === 'stream';
  }

  /**
   * The caller has ended its side of the connection. It might still read an answer, but a caller
   * that has left looks the same, so the connection is closed.
   */
  callerEnded(): void {
    if (this.#kind !== undefined) this.request.socket.destroy();
  }

  /** The caller sends too many requests: little of this one's body is read. */
  limitBodyDrain(): void {
    this.#droppedBody.limit();
  }

  /** The body cannot be read to its end. The answer is `reason`, unless the handler has begun. */
  failBody(reason: CnapiError): void {
    this.#droppedBody.breakOff();
    this.abort(reason);
  }

  #answerShare(): MemoryShare {
    this.#share ??= this.#deps.limits.answers.open(this.caller);
    if (this.#response.closed) this.#share.release();
    return this.#share;
  }

  get log(): Logger {
    this.#log ??= this.#deps.log.child({ req_id: this.requestId });
    return this.#log;
  }

  /**
   * Aborted when the caller has disconnected, when the answer is complete, or by `abort()`, whose
   * reason is sent as an answer.
   */
  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  abort(reason: CnapiError): void {
    this.#abort.abort(reason);
  }

  get elapsedMs(): number {
    return this.#deps.clock.now() - this.#startedAt;
  }

  get path(): string {
    return (this.request.url ?? '').split('?', 1)[0] ?? '';
  }

  get hasCallerLeft(): boolean {
    return this.#response.destroyed && !this.#response.writableFinished;
  }

  get isAnswered(): boolean {
    return this.#response.headersSent;
  }

  /** The status that was sent; 499 if the caller disconnected before that. */
  get status(): number {
    return this.isAnswered ? this.#response.statusCode : CALLER_LEFT_STATUS;
  }

  /** Before a body is read, and before it is parsed. @throws BodyCostError */
  checkEarlierBodies(): void {
    const { limits, clock } = this.#deps;
    if (limits.isOpen) return;
    limits.bodies.check(this.#sender, clock.now());
    if (this.signer !== undefined) limits.bodies.check(this.#callerAs(this.signer), clock.now());
  }

  /** Whether the bucket of the sender is empty after its earlier bodies. */
  get isOverBodyLimit(): boolean {
    const { limits, clock } = this.#deps;
    return !limits.isOpen && limits.bodies.isOver(this.#sender, clock.now());
  }

  /** Part of the cost of this request's body. */
  chargeBody(size: BodySize): void {
    this.#charged.bytes += size.bytes;
    this.#charged.values += size.values;
    this.#charge(size);
  }

  /**
   * The body that was read is the one that `signer` signed: from now on `signer` is the caller, and
   * the body is charged to it.
   */
  bodyIsSigned(): void {
    const { limits, clock } = this.#deps;
    this.actor = this.signer;
    const callers = { from: this.#sender, to: this.#callerAs(this.signer) };
    if (!limits.isOpen) limits.bodies.move(this.#charged, callers, clock.now());
  }

  /** The memory of this request's body; release it. */
  openBodyMemory(): MemoryShare {
    const { limits } = this.#deps;
    return limits.bodyMemory.open(limits.isOpen ? undefined : limits.bodies.keyOf(this.#sender));
  }

  /**
   * The caller that a body is charged to as it arrives. Somebody may have captured the headers of
   * the signer and send them with any bytes, so it is the address until the body is known to be the
   * signed one, and for everything that is dropped.
   */
  get #sender() {
    return this.#callerAs(this.signer === undefined ? this.actor : undefined);
  }

  #callerAs(actor: Actor | undefined) {
    return { actor, address: this.#address };
  }

  #charge(size: BodySize): void {
    const { limits, clock } = this.#deps;
    if (!limits.isOpen) limits.bodies.charge(this.#sender, size, clock.now());
  }

  /**
   * The route takes no body: drops any that arrives, so that it stays in no buffer while the answer
   * is made, however long that takes. A caller that sends too much is cut off; if the request is
   * not carried out, also a caller that is over its limit.
   */
  dropBody({ isCarriedOut = true } = {}): void {
    const onTooMuch = () => {
      this.#noteBreak('the caller sends a large body that is not wanted');
      this.request.socket.destroy();
    };
    this.#droppedBody.drop(onTooMuch, { isOptional: !isCarriedOut });
  }

  /** The body will be read: a caller that waits for `100 Continue` gets it now. */
  acceptBody(): void {
    if (this.#expectsContinue && !this.isAnswered) this.#response.writeContinue();
    this.#isBodyAccepted = true;
  }

  get #expectsContinue(): boolean {
    return this.request.httpVersion !== '1.0' && this.request.headers.expect?.toLowerCase() === '100-continue';
  }

  /** Logs the request, once it is answered. */
  logRequest({ method, name }: Pick<Route, 'method' | 'name'>): void {
    if (!this.#deps.limits.requestLog.mayWrite(this.#address)) return;
    const { status, actor } = this;
    const who = actor === undefined || actor === OPEN_ACTOR || actor === ANONYMOUS_ACTOR ? {} : { actor: actor.name };
    const left = this.hasCallerLeft ? { caller: 'left' } : {};
    const ms = Math.round(this.elapsedMs);
    this.log.info({ method, path: cutForLog(this.path), route: name, status, ms, ...who, ...left }, 'request');
  }

  async send(answer: RouteAnswer): Promise<void> {
    try {
      if (this.#response.destroyed || this.isAnswered) return;
      if (answer.events !== undefined) {
        this.#writeHeaders(answer);
        const held = (bytes: number) => this.#answerShare().resize(bytes);
        await sendEvents(this.#response, answer.events, { clock: this.#deps.clock, signal: this.signal, held });
      } else if (answer.rows !== undefined) {
        this.#writeHeaders(answer);
        await this.#sendRows(answer.rows);
      } else {
        await this.#sendContent(answer);
      }
    } catch (error) {
      this.#noteFailure(error);
      cutOff(this.#response);
    }
  }

  /** Logs no error if the reader disconnected. The reader of a broken stream resumes it. */
  #noteFailure(error: unknown): void {
    if (this.signal.aborted) return;
    if (isDefect(error)) this.log.error({ err: error }, 'request: answer failed');
    else this.#noteBreak(messageOf(error));
  }

  #noteBreak(reason: string): void {
    if (this.#deps.limits.requestLog.mayWrite(this.#address)) this.log.info({ reason }, 'request: answer cut off');
  }

  #writeHeaders(answer: RouteAnswer): void {
    const response = this.#response;
    response.statusCode = answer.status;
    response.setHeader('Server', `cnapi/${this.#deps.version}`);
    response.setHeader('x-request-id', this.requestId);
    response.setHeader('x-response-time', String(Math.round(this.elapsedMs)));
    response.setHeader('x-server-name', os.hostname());
    for (const [name, value] of Object.entries(answer.headers ?? {})) response.setHeader(name, value);
    if (answer.events !== undefined) {
      response.setHeader('Content-Type', 'text/event-stream');
      response.setHeader('Cache-Control', 'no-store');
    }
    // The rest of a body that was not read completely must not be parsed as the next request.
    if (!this.request.complete || this.#deps.isLeaving()) response.setHeader('Connection', 'close');
    else if (response.shouldKeepAlive) response.setHeader('Keep-Alive', KEEP_ALIVE);
  }

  /**
   * If there is no memory for the answer to a GET, sends a refusal instead. All other answers are
   * sent, because their change must not be done twice.
   */
  async #sendContent(answer: RouteAnswer): Promise<void> {
    const content = contentOf(answer);
    const bytes = content === undefined ? 0 : Buffer.byteLength(content);
    if (bytes <= SMALL_ANSWER_BYTES || this.request.method !== 'GET') this.#answerShare().holdAnyway(bytes);
    else {
      try {
        this.reserve(bytes);
      } catch (error) {
        const refusal = errorAnswer(error);
        this.#writeHeaders(refusal);
        return this.#end(refusal, contentOf(refusal));
      }
    }
    this.#writeHeaders(answer);
    if (content === undefined || bytes <= SMALL_ANSWER_BYTES) return this.#end(answer, content);
    this.#response.setHeader('Content-Type', answer.text?.contentType ?? 'application/json');
    this.#response.setHeader('Content-Length', bytes);
    const encoded = typeof content === 'string' ? Buffer.from(content) : content;
    if (await writeInSlices(this.#response, encoded, this.#deps.clock)) this.#finish();
    else this.#cutOff();
  }

  async #sendRows({ first, rest }: NonNullable<RouteAnswer['rows']>): Promise<void> {
    const response = this.#response;
    response.setHeader('Content-Type', 'application/json');
    let text = `[${first}`;
    for (;;) {
      const content = Buffer.from(text);
      this.reserve(content.length);
      if (!(await writeInSlices(response, content, this.#deps.clock))) return this.#cutOff();
      const next = await rest.next();
      if (next.done === true) break;
      text = next.value.text === '' ? '' : `,${next.value.text}`;
    }
    response.write(']');
    this.#finish();
  }

  /** Cuts off a caller that is too slow, unless it has disconnected already. */
  #cutOff(): void {
    if (!this.#response.destroyed && !this.signal.aborted) {
      this.#deps.limits.noteSlowReader();
      this.#noteBreak('the caller does not read its answer');
    }
    cutOff(this.#response);
  }

  #end(answer: RouteAnswer, content: string | Buffer | undefined): void {
    if (content === undefined) {
      if (answer.status !== 204) this.#response.setHeader('Content-Length', 0);
    } else {
      this.#response.setHeader('Content-Type', answer.text?.contentType ?? 'application/json');
      this.#response.setHeader('Content-Length', Buffer.byteLength(content));
    }
    if (!this.#isBodyOnItsWay) {
      this.#response.end(content);
      return;
    }
    if (content === undefined) this.#response.flushHeaders();
    else this.#response.write(content);
    this.#droppedBody.drain(() => this.#response.end());
  }

  get #isBodyOnItsWay(): boolean {
    return !this.request.complete && (this.#isBodyAccepted || !this.#expectsContinue);
  }

  #finish(): void {
    if (this.#isBodyOnItsWay) this.#droppedBody.drain(() => this.#response.end());
    else this.#response.end();
  }
}

function contentOf(answer: RouteAnswer): string | Buffer | undefined {
  if (answer.text !== undefined) return answer.text.content;
  return answer.body === undefined ? undefined : JSON.stringify(answer.body);
}
