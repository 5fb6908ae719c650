/**
 * The limits of Node's HTTP server, and how it treats the bytes of a connection. Called by the
 * listener, before it listens. The parser's `onIncoming` and its result are not a documented API of
 * Node; the listener's tests fail if they change.
 */
import type { IncomingMessage, Server } from 'node:http';
import type { Socket } from 'node:net';

interface ConnectionRules {
  isTls: boolean;
  /** Whether the request leaves HTTP; without that its offer of another protocol is ignored. */
  mayUpgrade(request: IncomingMessage): boolean;
  /** Nothing more that arrives on this connection is parsed. */
  ignoresInput(socket: Socket): boolean;
}

const HEADERS_WITHIN_MS = 30_000;
/** Limits the time to receive a request with its body. An answer has no time limit. */
const REQUEST_WITHIN_MS = 60_000;
const KEEP_ALIVE_MS = 65_000;
const MAX_HEADERS = 100;

/** The result of `onIncoming` that ends the parsing of what has been read, without an error. */
const SKIP = 2;

type OnIncoming = (request: IncomingMessage, shouldKeepAlive: boolean) => number;
type ParsedSocket = Socket & { parser: { onIncoming: OnIncoming } };

export function configureServer(http: Server, { isTls, mayUpgrade, ignoresInput }: ConnectionRules): void {
  http.headersTimeout = HEADERS_WITHIN_MS;
  http.requestTimeout = REQUEST_WITHIN_MS;
  http.keepAliveTimeout = KEEP_ALIVE_MS;
  http.maxHeadersCount = MAX_HEADERS;
  Object.assign(http, {
    // `request-head.ts` requires it, with an answer that says so.
    requireHostHeader: false,
    shouldUpgradeCallback: mayUpgrade,
    // Else Node ends its own side before the answer to a caller that has ended the other.
    httpAllowHalfOpen: true,
  });
  // Node parses all of the 64 KiB that it has read, even if the first request in them has closed
  // the connection: thousands of requests.
  http.on(isTls ? 'secureConnection' : 'connection', (socket: Socket) => {
    const { parser } = socket as ParsedSocket;
    const parsed = parser.onIncoming;
    const isOver = () => socket.destroyed || ignoresInput(socket);
    parser.onIncoming = (request, shouldKeepAlive) => {
      if (isOver()) return SKIP;
      const result = parsed(request, shouldKeepAlive);
      return isOver() ? SKIP : result;
    };
  });
}
