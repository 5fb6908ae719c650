/** A server of archives on a loopback port that a test can make cut, lie and redirect. */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Test } from 'tap';

export interface Served {
  body: Buffer;
  etag?: string;
  /** Ends the connection after so many bytes of an answer. */
  cutAfter?: number;
  /** Instead of an answer. */
  answer?(request: IncomingMessage, response: ServerResponse): void;
}

export interface ImageServer {
  url: string;
  /** What it serves; a test may change it. */
  served: Served;
  /** The `Range` of each request; `whole` without one. */
  asked: string[];
}

export async function imageServer(t: Test, served: Served): Promise<ImageServer> {
  const state: ImageServer = { url: '', served, asked: [] };
  const server = createServer((request, response) => {
    const { body, etag = '"one"', cutAfter, answer } = state.served;
    const { range = 'whole', 'if-range': ifRange } = request.headers;
    state.asked.push(range);
    if (answer !== undefined) return answer(request, response);
    const from = range === 'whole' || ifRange !== etag ? 0 : Number(/^bytes=(\d+)-$/.exec(range)?.[1]);
    const part = body.subarray(from);
    response.writeHead(from === 0 ? 200 : 206, {
      etag,
      'content-length': part.length,
      ...(from === 0 ? {} : { 'content-range': `bytes ${from}-${body.length - 1}/${body.length}` }),
    });
    if (cutAfter === undefined || cutAfter >= part.length) return response.end(part);
    response.write(part.subarray(0, cutAfter), () => response.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => new Promise((resolve) => server.close(resolve)));
  state.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/images/one`;
  return state;
}
