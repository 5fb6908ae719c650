/**
 * One request to a legacy agent's own HTTP port, and its answer: the common part of tasks, history,
 * pause and resume. Trusts no answer: bounds the body, its time and the sum of all bodies; keeps no
 * connection. A call without an answer throws the HttpError of the HTTP client, which bounds the
 * head. Used by `legacy-agent-api.ts`.
 */

import { createHash } from 'node:crypto';
import { MIB } from '../../platform/byte-units.ts';
import { HttpClient, type HttpRequest } from '../../platform/http-client/http-client.ts';
import { HttpError } from '../../platform/http-client/http-error.ts';
import type { HttpAnswer } from '../../platform/http-client/pending-request.ts';
import { MemoryBudget } from '../../platform/limiting/memory-budget.ts';
import type { Clock } from '../../platform/time/clock.ts';
import type { AgentAddress } from './agent-address.ts';

export interface AgentCall {
  address: AgentAddress;
  serverUuid: string;
  requestId: string;
  method: 'GET' | 'POST';
  path: string;
  /** Sent as JSON. */
  body?: object;
  /** Until the beginning of the answer. */
  timeoutMs: number;
  signal?: AbortSignal;
}

/** `unread`: why the body could not be read completely. `isJson`: its content type says so. */
export type AgentAnswer = { status: number; isJson: boolean } & ({ body: string } | { unread: string });

interface AgentCallStats {
  calls: number;
  /** Calls without an answer. */
  failed: number;
  /** Answers whose body was not read completely: too long, too slow, or broken off. */
  unread: number;
}

export interface LegacyHttpLimits {
  connectMs: number;
  /** Time limit from an answer's header to its end. */
  bodyMs: number;
  bodyBytes: number;
  /** Limits all bodies that are being read, together. */
  allBodyBytes: number;
  /** Limits the bodies that are being read from one server. */
  serverBodyBytes: number;
}

class BodyMemoryError extends Error {}

const DEFAULT_LIMITS: LegacyHttpLimits = {
  connectMs: 5_000,
  bodyMs: 30_000,
  bodyBytes: 4 * MIB,
  allBodyBytes: 64 * MIB,
  serverBodyBytes: 8 * MIB,
};
const REQUEST_ID = /^[\x21-\x7e]{1,200}$/;

interface LegacyHttpClientDeps {
  clock: Clock;
  /** This instance's version, for User-Agent. */
  version: string;
  limits?: Partial<LegacyHttpLimits>;
}

export class LegacyHttpClient {
  readonly #http: HttpClient;
  readonly #version: string;
  readonly #limits: LegacyHttpLimits;
  readonly #stats: AgentCallStats = { calls: 0, failed: 0, unread: 0 };
  readonly #bodies: MemoryBudget;

  constructor({ clock, version, limits }: LegacyHttpClientDeps) {
    this.#version = version;
    this.#limits = { ...DEFAULT_LIMITS, ...limits };
    this.#http = new HttpClient({ clock, connectMs: this.#limits.connectMs });
    const { allBodyBytes: maxBytes, serverBodyBytes: maxBytesPerCaller } = this.#limits;
    this.#bodies = new MemoryBudget({
      maxBytes,
      maxBytesPerCaller,
      full: () => new BodyMemoryError('too much was being read concurrently'),
      shareFull: () => new BodyMemoryError('too much was being read from this server concurrently'),
    });
  }

  stats(): AgentCallStats {
    return { ...this.#stats };
  }

  /** @throws HttpError */
  async call(call: AgentCall): Promise<AgentAnswer> {
    this.#stats.calls += 1;
    try {
      const answer = await this.#read(await this.#http.request(this.#requestOf(call)), call.serverUuid);
      if ('unread' in answer) this.#stats.unread += 1;
      return answer;
    } catch (error) {
      this.#stats.failed += 1;
      throw error;
    }
  }

  #requestOf({ address, method, path, serverUuid, requestId, body, timeoutMs, signal }: AgentCall): HttpRequest {
    const text = body === undefined ? undefined : JSON.stringify(body);
    const headers = {
      accept: 'application/json',
      'user-agent': `cnapi/${this.#version}`,
      'x-server-uuid': serverUuid,
      'x-request-id': REQUEST_ID.test(requestId) ? requestId : serverUuid,
      ...(text !== undefined && { 'content-type': 'application/json', 'content-md5': md5Of(text) }),
    };
    return { target: address, method, path, headers, body: text, headMs: timeoutMs, signal };
  }

  async #read(answer: HttpAnswer, serverUuid: string): Promise<AgentAnswer> {
    const isJson = /^application\/([\w.-]+\+)?json\b/i.test(answer.header('content-type') ?? '');
    const head = { status: answer.status, isJson };
    const { bodyMs, bodyBytes } = this.#limits;
    const memory = this.#bodies.open(serverUuid);
    const pieces: Buffer[] = [];
    let bytes = 0;
    try {
      for await (const piece of answer.pieces({ withinMs: bodyMs })) {
        bytes += piece.length;
        if (bytes > bodyBytes) return { ...head, unread: `it was longer than ${bodyBytes} bytes` };
        memory.hold(bytes);
        pieces.push(piece);
      }
      return { ...head, body: Buffer.concat(pieces).toString('utf8') };
    } catch (error) {
      if (error instanceof BodyMemoryError) return { ...head, unread: error.message };
      if (!(error instanceof HttpError) || error.kind === 'given-up') throw error;
      if (error.kind === 'timed-out') return { ...head, unread: `it took longer than ${bodyMs} ms` };
      return { ...head, unread: `it broke off: ${error.reason}` };
    } finally {
      memory.release();
    }
  }
}

const md5Of = (text: string): string => createHash('md5').update(text).digest('base64');
