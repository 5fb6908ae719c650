/** One small HTTP request to a CNAPI, on its own connection and with a deadline. */
import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import type { Clock } from '../../platform/clock.ts';
import type { ConnectionCredentials } from './credentials.ts';
import type { Endpoint } from './endpoints.ts';

interface HttpRequest {
  endpoint: Endpoint;
  passage: ConnectionCredentials;
  method: 'GET' | 'POST';
  path: string;
  headers?: Record<string, string>;
  body?: string;
  withinMs: number;
  /** A local address to connect from. */
  localAddress?: string | undefined;
  signal?: AbortSignal | undefined;
}

export interface HttpAnswer {
  status: number;
  /** The answer's `Retry-After` if it is in seconds, else 0. */
  retryAfterMs: number;
}

/**
 * Resolves with the status; the body is read and dropped. @throws the reason for a missing answer
 */
export function answerTo(asked: HttpRequest, clock: Clock): Promise<HttpAnswer> {
  const { endpoint, passage, method, path, body, withinMs, localAddress, signal } = asked;
  const headers = { ...asked.headers, ...passage.headers };
  const { promise, resolve, reject } = Promise.withResolvers<HttpAnswer>();
  const request = (passage.tls ? httpsRequest : httpRequest)({
    ...passage.tls,
    host: endpoint.host,
    port: endpoint.port,
    method,
    path,
    headers: body === undefined ? headers : { ...headers, 'Content-Length': Buffer.byteLength(body) },
    agent: false,
    ...(localAddress === undefined ? {} : { localAddress }),
    ...(signal === undefined ? {} : { signal }),
  });
  const timer = clock.after(withinMs, () => request.destroy(new Error(`no answer within ${withinMs} ms`)));
  request.on('response', (response) => {
    const retryAfterMs = retryAfterMsIn(response.headers['retry-after']);
    response.on('end', () => resolve({ status: response.statusCode ?? 0, retryAfterMs }));
    response.on('error', reject);
    response.resume();
  });
  request.on('error', reject);
  request.on('close', () => {
    timer.cancel();
    reject(new Error('the connection ended before the answer'));
  });
  request.end(body);
  return promise;
}

export function retryAfterMsIn(header: string | undefined): number {
  return header !== undefined && /^\d{1,6}$/.test(header) ? Number(header) * 1000 : 0;
}
