/**
 * One request and its reply. Owns the request's id, its time, the signal that says its caller has left, and the writing
 * of exactly one reply with the headers that all have. Made by the listener; `send` never throws.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import os from 'node:os';
import type { Actor } from '../access/token.ts';
import { type CnapiError, messageOf } from '../errors.ts';
import type { Logger } from '../log.ts';
import type { Clock } from '../ports/clock.ts';
import type { Random } from '../ports/random.ts';
import { isDefect } from './error-mapping.ts';
import { sendEvents } from './event-stream.ts';
import type { Reply } from './route.ts';

export interface ExchangeDeps {
  version: string;
  clock: Clock;
  random: Random;
  log: Logger;
  /** With its answer, a caller is told not to come back on this connection. */
  isLeaving(): boolean;
}

/** Nobody sees it but the log and the metrics, which know it by this number since nginx. */
const CALLER_LEFT = 499;
const REQUEST_ID = /^[\x21-\x7e]{1,100}$/;

/**
 * Far less than they are kept (`listener.ts`): by the end of a drain, callers who heed it have let go of the connections that
 * they did not use.
 */
const KEEP_ALIVE = 'timeout=4';

export class Exchange {
  readonly request: IncomingMessage;
  readonly requestId: string;
  /** Who asks, once that is known. */
  actor: Actor | undefined;
  readonly #response: ServerResponse;
  readonly #deps: ExchangeDeps;
  readonly #startedAt: number;
  readonly #abort = new AbortController();
  #log: Logger | undefined;

  constructor(request: IncomingMessage, response: ServerResponse, deps: ExchangeDeps) {
    this.request = request;
    this.#response = response;
    this.#deps = deps;
    this.#startedAt = deps.clock.now();
    this.requestId = requestIdOf(request) ?? deps.random.uuid();
    response.once('close', () => this.#abort.abort());
  }

  get log(): Logger {
    this.#log ??= this.#deps.log.child({ req_id: this.requestId });
    return this.#log;
  }

  /** Aborted when the caller has left, when the reply is through, or by `abort()`, whose reason is worth a reply. */
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

  /** As it was sent; 499 for a caller who left before that. */
  get status(): number {
    return this.isAnswered ? this.#response.statusCode : CALLER_LEFT;
  }

  async send(reply: Reply): Promise<void> {
    try {
      if (this.#response.destroyed || this.isAnswered) return;
      this.#writeHeaders(reply);
      if (reply.events === undefined) this.#end(reply);
      else await sendEvents(this.#response, reply.events, { clock: this.#deps.clock, signal: this.signal });
    } catch (error) {
      this.#noteFailure(error);
      this.#response.destroy();
    }
  }

  /** A stream that breaks off is resumed by its reader, unless it was the reader who left. */
  #noteFailure(error: unknown): void {
    if (this.signal.aborted) return;
    if (isDefect(error)) this.log.error({ err: error }, 'reply failed');
    else this.log.info({ reason: messageOf(error) }, 'reply broke off');
  }

  #writeHeaders(reply: Reply): void {
    const response = this.#response;
    response.statusCode = reply.status;
    response.setHeader('Server', `cnapi/${this.#deps.version}`);
    response.setHeader('x-request-id', this.requestId);
    response.setHeader('x-response-time', String(Math.round(this.elapsedMs)));
    response.setHeader('x-server-name', os.hostname());
    for (const [name, value] of Object.entries(reply.headers ?? {})) response.setHeader(name, value);
    if (reply.events !== undefined) {
      response.setHeader('Content-Type', 'text/event-stream');
      response.setHeader('Cache-Control', 'no-store');
    }
    // What is left of a body that was not read to its end must not be taken for the next request.
    if (!this.request.complete || this.#deps.isLeaving()) response.setHeader('Connection', 'close');
    else if (response.shouldKeepAlive) response.setHeader('Keep-Alive', KEEP_ALIVE);
  }

  #end(reply: Reply): void {
    const content = contentOf(reply);
    if (content === undefined) {
      if (reply.status !== 204) this.#response.setHeader('Content-Length', 0);
      this.#response.end();
      return;
    }
    this.#response.setHeader('Content-Type', reply.text?.contentType ?? 'application/json');
    this.#response.setHeader('Content-Length', Buffer.byteLength(content));
    this.#response.end(content);
  }
}

/** The caller's request id, if it can be trusted in a header and a log. */
export function requestIdOf(request: IncomingMessage): string | undefined {
  const given = request.headers['x-request-id'] ?? request.headers['request-id'];
  return typeof given === 'string' && REQUEST_ID.test(given) ? given : undefined;
}

function contentOf(reply: Reply): string | undefined {
  if (reply.text !== undefined) return reply.text.content;
  return reply.body === undefined ? undefined : JSON.stringify(reply.body);
}
