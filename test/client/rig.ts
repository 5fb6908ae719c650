/** A client, and scripted addresses that answer, break off or refuse, over real sockets. */
import { readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { type AddressInfo, createServer as createTcpServer } from 'node:net';
import type { Discovery } from '../../lib/client/address.ts';
import { FailoverClient } from '../../lib/client/failover-client.ts';
import { systemRandom } from '../../lib/platform/random.ts';
import { systemClock } from '../../lib/platform/time/clock.ts';
import type { Teardown } from '../support/postgres.ts';

export interface Heard {
  method: string;
  path: string;
  headers: IncomingMessage['headers'];
  body: string;
}

export interface Scripted {
  url: string;
  heard: Heard[];
  stop(): Promise<void>;
}

export async function scripted(
  t: Teardown,
  answer: (response: ServerResponse, heard: Heard) => void,
  tls?: { certFile: string; keyFile: string },
): Promise<Scripted> {
  const heard: Heard[] = [];
  const listener = async (request: IncomingMessage, response: ServerResponse) => {
    let body = '';
    for await (const chunk of request) body += chunk;
    const one = { method: request.method ?? '', path: request.url ?? '', headers: request.headers, body };
    heard.push(one);
    answer(response, one);
  };
  const server =
    tls === undefined
      ? createServer(listener)
      : createTlsServer({ cert: readFileSync(tls.certFile), key: readFileSync(tls.keyFile) }, listener);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const stop = () =>
    new Promise<void>((resolve) => {
      server.close(() => resolve());
      server.closeAllConnections();
    });
  t.teardown(stop);
  const scheme = tls === undefined ? 'http' : 'https';
  return { url: `${scheme}://127.0.0.1:${(server.address() as AddressInfo).port}`, heard, stop };
}

/** An address at which nobody listens: one that was just released. */
export async function refusing(): Promise<string> {
  const server = createTcpServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return `http://127.0.0.1:${port}`;
}

export function json(
  response: ServerResponse,
  status: number,
  body: unknown,
  headers: Record<string, string> = {},
): void {
  response.writeHead(status, { 'content-type': 'application/json', 'x-request-id': 'the-request', ...headers });
  response.end(JSON.stringify(body));
}

export function failoverClient(t: Teardown, urls: readonly string[], token?: string): FailoverClient {
  return failoverClientAt(t, { urls }, { token });
}

export function failoverClientAt(
  t: Teardown,
  discovery: Discovery,
  { token, ca }: { token?: string | undefined; ca?: string } = {},
): FailoverClient {
  const made = new FailoverClient({
    discovery,
    secure: ca !== undefined,
    credentials: async () => ({ token, ca }),
    clock: systemClock,
    random: systemRandom,
  });
  t.teardown(() => made.close());
  return made;
}
