/** One small HTTP request to a CNAPI, on its own connection and with a deadline. */
import type { HttpClient } from '../../platform/http-client/http-client.ts';
import type { ConnectionCredentials } from './credentials.ts';
import type { Endpoint } from './endpoints.ts';

interface CnapiRequest {
  endpoint: Endpoint;
  credentials: ConnectionCredentials;
  method: 'GET' | 'POST';
  path: string;
  headers?: Record<string, string>;
  body?: string;
  withinMs: number;
  /** A local address to connect from. */
  localAddress?: string | undefined;
  signal?: AbortSignal | undefined;
}

export interface CnapiAnswer {
  status: number;
  /** The answer's `Retry-After` if it is in seconds, else 0. */
  retryAfterMs: number;
}

/** Resolves with the status; the body is read and dropped. @throws HttpError */
export async function requestCnapi(http: HttpClient, asked: CnapiRequest): Promise<CnapiAnswer> {
  const { endpoint, credentials, localAddress, withinMs, headers, ...request } = asked;
  const answer = await http.request({
    ...request,
    target: { host: endpoint.host, port: endpoint.port, tls: credentials.tls, localAddress },
    headers: { ...headers, ...credentials.headers },
    totalMs: withinMs,
  });
  for await (const piece of answer.pieces()) void piece;
  return { status: answer.status, retryAfterMs: retryAfterMsIn(answer.header('retry-after')) };
}

export function retryAfterMsIn(header: string | undefined): number {
  return header !== undefined && /^\d{1,6}$/.test(header) ? Number(header) * 1000 : 0;
}
