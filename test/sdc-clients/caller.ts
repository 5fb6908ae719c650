/**
 * Uses the client as Triton's programs do, for tests. A line of JSON on stdin is one call, and a
 * line on stdout is what its callback got. Calls run concurrently. The client package is
 * unmodified.
 *
 *     {"id": 1, "url": "http://127.0.0.1:8080", "method": "getServer", "args": ["…"]}
 *
 * A name and a password in the URL are passed to the client. Without a method, the result is the
 * list of the client's methods.
 *
 *     {"id": 1, "error": null, "result": {…}, "status": 200}
 */
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

export interface Call {
  id: number;
  url: string;
  method?: string;
  args: unknown[];
}

export interface Callback<Result = unknown> {
  id: number;
  error: { name: string; message: string; statusCode?: number; restCode?: string; body?: unknown } | null;
  /** The callback's second argument. */
  result: Result;
  /** The status of the response, where the callback got one. */
  status?: number;
}

type Client = Record<string, (...args: unknown[]) => void> & { close?(): void };

const { CNAPI } = createRequire(import.meta.url)('sdc-clients') as {
  CNAPI: new (options: { url: string; username?: string; password?: string }) => Client;
};
const methods = Object.getOwnPropertyNames(CNAPI.prototype).filter((name) => name !== 'constructor');
const clients = new Map<string, Client>();

for await (const line of createInterface({ input: process.stdin })) call(JSON.parse(line) as Call);
process.exit();

function call({ id, url, method, args }: Call): void {
  const client = clients.get(url) ?? new CNAPI(optionsOf(url));
  clients.set(url, client);
  if (method === undefined) return say({ id, error: null, result: methods });
  client[method]?.(
    ...args,
    (error: unknown, result: unknown, _request: unknown, response?: { statusCode?: number }) => {
      say({ id, error: described(error), result: result ?? null, status: response?.statusCode });
    },
  );
}

function optionsOf(text: string) {
  const url = new URL(text);
  const { username, password } = url;
  if (username === '') return { url: text };
  url.username = '';
  url.password = '';
  return { url: url.origin, username, password };
}

function described(error: unknown): Callback['error'] {
  if (!(error instanceof Error)) return null;
  const { name, message, statusCode, restCode, body } = error as Error & Partial<NonNullable<Callback['error']>>;
  return { name, message, ...(statusCode && { statusCode }), ...(restCode && { restCode }), ...(body ? { body } : {}) };
}

function say(line: object): void {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}
