/**
 * One request to a legacy agent's own HTTP port, and its reply: the common part of tasks, history,
 * pause and resume. Trusts no reply: bounds the header, the body, the time and the sum of all
 * bodies; follows no redirect and keeps no connection. Used by `caller.ts`.
 *
 *     connecting ──▶ sent ──▶ replying ──▶ reply
 *     at any moment: failed (AgentCallError states whether the request was sent)
 */
import { createHash } from 'node:crypto';
import http from 'node:http';
import type { Clock, Timer } from '../../platform/clock.ts';
import { CnapiError } from '../../platform/errors.ts';
import type { AgentAddress } from './agent-address.ts';

export interface AgentCall {
  address: AgentAddress;
  serverUuid: string;
  requestId: string;
  method: 'GET' | 'POST';
  path: string;
  /** Sent as JSON. */
  body?: object;
  /** Until the beginning of the reply. */
  timeoutMs: number;
  signal?: AbortSignal;
}

/** `unread`: why the body could not be read completely. `isJson`: its content type says so. */
export type AgentReply = { status: number; isJson: boolean } & ({ body: string } | { unread: string });

type CallTrouble = 'unreachable' | 'broken-off' | 'timed-out' | 'given-up' | 'unreadable';

/**
 * There was no reply. `wasSent`: the agent may have read the request. The message begins with the
 * transport's error.
 */
export class AgentCallError extends CnapiError {
  readonly trouble: CallTrouble;
  readonly wasSent: boolean;
  constructor(trouble: CallTrouble, wasSent: boolean, message: string, cause?: unknown) {
    super('AgentCallFailed', 500, message, { cause });
    this.trouble = trouble;
    this.wasSent = wasSent;
  }
}

interface MessengerStats {
  calls: number;
  /** Calls without a reply. */
  failed: number;
  /** Replies whose body was not read completely: too long, too slow, or broken off. */
  unread: number;
}

export interface MessengerLimits {
  connectMs: number;
  /** From a reply's header to its end. */
  bodyMs: number;
  bodyBytes: number;
  /** Of all bodies that are being read. */
  allBodyBytes: number;
}

const MIB = 1024 * 1024;
const DEFAULT_LIMITS: MessengerLimits = {
  connectMs: 5_000,
  bodyMs: 30_000,
  bodyBytes: 4 * MIB,
  allBodyBytes: 64 * MIB,
};
const MAX_HEADER_BYTES = 16 * 1024;
/** Replies of status 1xx before the final one. */
const MAX_INTERIM = 8;
/** The operating system detects a lost peer after some minutes instead of an hour. */
const KEEPALIVE_AFTER_MS = 60_000;
const REQUEST_ID = /^[\x21-\x7e]{1,200}$/;

interface LegacyHttpClientDeps {
  clock: Clock;
  /** This instance's version, for User-Agent. */
  version: string;
  limits?: Partial<MessengerLimits>;
}

export class LegacyHttpClient {
  readonly #clock: Clock;
  readonly #version: string;
  readonly #limits: MessengerLimits;
  readonly #agent = new http.Agent({ keepAlive: false });
  readonly #stats: MessengerStats = { calls: 0, failed: 0, unread: 0 };
  readonly #reading = { bytes: 0 };

  constructor({ clock, version, limits }: LegacyHttpClientDeps) {
    this.#clock = clock;
    this.#version = version;
    this.#limits = { ...DEFAULT_LIMITS, ...limits };
  }

  stats(): MessengerStats {
    return { ...this.#stats };
  }

  /** @throws AgentCallError */
  async call(call: AgentCall): Promise<AgentReply> {
    this.#stats.calls += 1;
    try {
      const reply = await new Exchange(call, this.#limits, this.#clock, this.#reading).run(this.#options(call));
      if ('unread' in reply) this.#stats.unread += 1;
      return reply;
    } catch (error) {
      this.#stats.failed += 1;
      throw error;
    }
  }

  #options({ address, method, path, serverUuid, requestId }: AgentCall): http.RequestOptions {
    return {
      ...address,
      method,
      path,
      agent: this.#agent,
      maxHeaderSize: MAX_HEADER_BYTES,
      headers: {
        accept: 'application/json',
        'user-agent': `cnapi/${this.#version}`,
        'x-server-uuid': serverUuid,
        'x-request-id': REQUEST_ID.test(requestId) ? requestId : serverUuid,
      },
    };
  }
}

/** One call, from its start until it settles once. */
class Exchange {
  readonly #call: AgentCall;
  readonly #limits: MessengerLimits;
  readonly #clock: Clock;
  readonly #reading: { bytes: number };
  readonly #settled = Promise.withResolvers<AgentReply>();
  #request: http.ClientRequest | undefined;
  #timer: Timer | undefined;
  #wasSent = false;
  #interim = 0;
  #head: { status: number; isJson: boolean } | undefined;
  #chunks: Buffer[] = [];
  #bytes = 0;

  constructor(call: AgentCall, limits: MessengerLimits, clock: Clock, reading: { bytes: number }) {
    this.#call = call;
    this.#limits = limits;
    this.#clock = clock;
    this.#reading = reading;
  }

  async run(options: http.RequestOptions): Promise<AgentReply> {
    const { signal, timeoutMs } = this.#call;
    if (signal?.aborted) throw new AgentCallError('given-up', false, 'given up before it was sent');
    const onAbort = () => this.#fail('given-up', 'given up');
    signal?.addEventListener('abort', onAbort, { once: true });
    this.#within(Math.min(this.#limits.connectMs, timeoutMs), () => this.#connectTimedOut());
    try {
      this.#start(options);
      return await this.#settled.promise;
    } finally {
      signal?.removeEventListener('abort', onAbort);
      this.#timer?.cancel();
      this.#reading.bytes -= this.#bytes;
      this.#request?.destroy();
    }
  }

  #start(options: http.RequestOptions): void {
    const request = http.request(options);
    this.#request = request;
    request.on('error', (error) => this.#broke(error));
    request.on('close', () => this.#broke(new Error('the connection was closed')));
    request.on('information', () => {
      this.#interim += 1;
      if (this.#interim > MAX_INTERIM) this.#fail('unreadable', 'too many interim replies');
    });
    request.on('upgrade', (_response, socket) => {
      socket.destroy();
      this.#fail('unreadable', 'the agent wants another protocol');
    });
    request.on('response', (response) => this.#read(response));
    request.on('socket', (socket) => {
      socket.setKeepAlive(true, KEEPALIVE_AFTER_MS);
      socket.once('connect', () => this.#connected());
    });
    const { body } = this.#call;
    if (body === undefined) return void request.end();
    const text = JSON.stringify(body);
    request.setHeader('content-type', 'application/json');
    request.setHeader('content-length', Buffer.byteLength(text));
    request.setHeader('content-md5', createHash('md5').update(text).digest('base64'));
    request.end(text);
  }

  #connected(): void {
    this.#wasSent = true;
    this.#within(this.#call.timeoutMs, () => this.#fail('timed-out', `no reply within ${this.#call.timeoutMs} ms`));
  }

  #connectTimedOut(): void {
    const { host, port } = this.#call.address;
    this.#fail('unreachable', `connect ETIMEDOUT ${host}:${port}`);
  }

  #read(response: http.IncomingMessage): void {
    const isJson = /^application\/([\w.-]+\+)?json\b/i.test(response.headers['content-type'] ?? '');
    const head = { status: response.statusCode ?? 0, isJson };
    this.#head = head;
    const { bodyMs, bodyBytes, allBodyBytes } = this.#limits;
    this.#within(bodyMs, () => this.#leaveUnread(`it took longer than ${bodyMs} ms`));
    response.on('data', (chunk: Buffer) => {
      this.#bytes += chunk.length;
      this.#reading.bytes += chunk.length;
      if (this.#bytes > bodyBytes) this.#leaveUnread(`it was longer than ${bodyBytes} bytes`);
      else if (this.#reading.bytes > allBodyBytes) this.#leaveUnread('too much was being read at once');
      else this.#chunks.push(chunk);
    });
    response.on('end', () => this.#settled.resolve({ ...head, body: this.#text() }));
    response.on('error', (error) => this.#leaveUnread(`it broke off: ${error.message}`));
  }

  #text(): string {
    return Buffer.concat(this.#chunks).toString('utf8');
  }

  #leaveUnread(unread: string): void {
    if (this.#head !== undefined) this.#settled.resolve({ ...this.#head, unread });
    this.#request?.destroy();
  }

  #broke(error: NodeJS.ErrnoException): void {
    if (this.#head !== undefined) return this.#leaveUnread(`it broke off: ${error.message}`);
    if (error.code?.startsWith('HPE_')) return this.#fail('unreadable', error.message, error);
    this.#fail(this.#wasSent ? 'broken-off' : 'unreachable', error.message, error);
  }

  #fail(trouble: CallTrouble, message: string, cause?: unknown): void {
    this.#settled.reject(new AgentCallError(trouble, this.#wasSent, message, cause));
    this.#request?.destroy();
  }

  #within(ms: number, expired: () => void): void {
    this.#timer?.cancel();
    this.#timer = this.#clock.after(Math.min(ms, MAX_TIMER_MS), expired);
  }
}

/** The longest delay that a timer accepts. */
const MAX_TIMER_MS = 2 ** 31 - 1;
