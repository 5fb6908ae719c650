/**
 * REST at the lowest cost that Node allows: kept-alive connections of node:http, so that little
 * besides the instance is measured.
 */
import http from 'node:http';
import { systemClock as clock } from '../../lib/platform/time/clock.ts';

export interface TimedAnswer {
  status: number;
  text: string;
  /** Time from before the request was made to the last byte of the answer. */
  ms: number;
}

export class BenchCaller {
  readonly #agent = new http.Agent({ keepAlive: true, maxSockets: 256 });
  readonly #headers: Record<string, string>;

  /** `headers` are sent with each request. */
  constructor(headers: Record<string, string> = {}) {
    this.#headers = headers;
  }

  get(url: string): Promise<TimedAnswer> {
    return this.#send('GET', url, undefined);
  }

  post(url: string, body: unknown): Promise<TimedAnswer> {
    return this.#send('POST', url, JSON.stringify(body));
  }

  put(url: string): Promise<TimedAnswer> {
    return this.#send('PUT', url, undefined);
  }

  delete(url: string): Promise<TimedAnswer> {
    return this.#send('DELETE', url, undefined);
  }

  stop(): void {
    this.#agent.destroy();
  }

  [Symbol.dispose](): void {
    this.stop();
  }

  #send(method: string, url: string, body: string | undefined): Promise<TimedAnswer> {
    const startedAt = clock.now();
    const content =
      body === undefined ? {} : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) };
    const headers = { ...this.#headers, ...content };
    return new Promise((resolve, reject) => {
      const request = http.request(url, { method, agent: this.#agent, headers }, (response) => {
        const chunks: Buffer[] = [];
        response.on('data', (chunk: Buffer) => chunks.push(chunk));
        response.once('error', reject);
        response.once('end', () => {
          const text = Buffer.concat(chunks).toString();
          resolve({ status: response.statusCode ?? 0, text, ms: clock.now() - startedAt });
        });
      });
      request.once('error', reject);
      request.end(body);
    });
  }
}

/** @throws when the answer has another status */
export function expectStatus(reply: TimedAnswer, status: number): TimedAnswer {
  if (reply.status === status) return reply;
  throw new Error(`answered ${reply.status}, not ${status}: ${reply.text.slice(0, 300)}`);
}
