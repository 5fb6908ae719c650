/** One small HTTP request to a CNAPI, on a connection of its own, answered within a bound or given up. */
import { request as httpRequest } from 'node:http';
import type { Clock } from '../ports/clock.ts';
import type { Endpoint } from './endpoints.ts';

export interface HttpRequest {
  endpoint: Endpoint;
  method: 'GET' | 'POST';
  path: string;
  headers?: Record<string, string>;
  body?: string;
  withinMs: number;
  /** A local address to connect from. */
  localAddress?: string | undefined;
  signal?: AbortSignal | undefined;
}

/** The status it was answered with; what else is in the answer is read and dropped. @throws what kept it from an answer */
export function statusOf(asked: HttpRequest, clock: Clock): Promise<number> {
  const { endpoint, method, path, headers = {}, body, withinMs, localAddress, signal } = asked;
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  const request = httpRequest({
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
    response.on('end', () => resolve(response.statusCode ?? 0));
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
