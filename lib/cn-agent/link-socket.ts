/**
 * One WebSocket to one instance, as the link driver sees it. `dialWebSocket` is the real one; the fleet wraps it to be
 * silent, slow or cut. After `closed` nothing more is heard from a socket; it never throws.
 */
import type { Duplex } from 'node:stream';
import { WebSocket } from 'ws';
import type { Clock } from '../ports/clock.ts';
import { closeReason } from '../wire/close-reason.ts';
import { type Credentials, NO_CREDENTIALS, type Passage } from './credentials.ts';
import type { Endpoint } from './endpoints.ts';
import { answerTo, type HttpAnswer, retryAfterMsIn } from './http-request.ts';

export interface LinkSocket {
  /** Bytes handed over that the network has not yet taken. */
  readonly bufferedBytes: number;
  send(text: string): void;
  /** Says goodbye, and does not wait long for an answer. The reason is cut to what a close frame holds. */
  close(code: number, reason: string): void;
}

export interface LinkSocketEvents {
  /** The connection is being made: from here on it counts how long that takes. */
  begun(): void;
  opened(): void;
  /** Bytes came, whatever they are: a sign of life. */
  heard(): void;
  received(text: string): void;
  /** Once, last: the connection could not be made (`refusal`: by an answer over HTTP, or for a known reason), or is over. */
  closed(reason: string, refusal?: UpgradeRefusal): void;
}

/** Status 0 when no answer came; `code` then is the system's name for why. */
export interface UpgradeRefusal extends HttpAnswer {
  code?: string;
}

export interface DialTarget {
  endpoint: Endpoint;
  serverUuid: string;
  maxFrameBytes: number;
  /** A local address to connect from. */
  localAddress?: string | undefined;
}

export type Dial = (target: DialTarget, events: LinkSocketEvents) => LinkSocket;

const GOODBYE_MS = 1000;
const TEXT_FRAME = { binary: false };
const ROUTE_WITHIN_MS = 2000;

export function dialWebSocket(clock: Clock, credentials = NO_CREDENTIALS): Dial {
  return (target, events) => {
    const opened = openWebSocket(target, credentials);
    const socket = linkSocketOf(opened, events, clock);
    events.begun();
    return socket;
  };
}

/** A connection that is being made, and what is known of the way there. */
export interface OpenedSocket {
  socket: WebSocket;
  endpoint: Endpoint;
  passage: Passage;
}

export function openWebSocket(target: DialTarget, credentials: Credentials): OpenedSocket {
  const { endpoint, serverUuid, maxFrameBytes, localAddress } = target;
  if (!/^[\w.:-]+$/.test(endpoint.host)) throw new Error('not a host name');
  const host = endpoint.host.includes(':') ? `[${endpoint.host}]` : endpoint.host;
  const passage = credentials.passageTo(endpoint);
  const scheme = passage.tls ? 'wss' : 'ws';
  const socket = new WebSocket(`${scheme}://${host}:${endpoint.port}/agents/${serverUuid}/link`, {
    ...passage.tls,
    headers: passage.headers,
    perMessageDeflate: false,
    maxPayload: maxFrameBytes,
    followRedirects: false,
    ...(localAddress === undefined ? {} : { localAddress }),
  });
  return { socket, endpoint, passage };
}

export function linkSocketOf(opened: OpenedSocket, events: LinkSocketEvents, clock: Clock): LinkSocket {
  const { socket } = opened;
  let wire: Duplex | undefined;
  let over = false;
  const end = (reason: string, refusal?: UpgradeRefusal) => {
    if (over) return;
    over = true;
    events.closed(reason, refusal);
  };
  socket.on('upgrade', (response) => {
    wire = response.socket;
  });
  let isOpen = false;
  socket.on('open', () => {
    isOpen = true;
    wire?.on('data', () => over || events.heard());
    if (!over) events.opened();
  });
  socket.on('message', (data, isBinary) => {
    if (!over) events.received(isBinary ? '' : String(data));
  });
  socket.on('unexpected-response', (request, response) => {
    const status = response.statusCode ?? 0;
    end(`upgrade refused with HTTP ${status}`, {
      status,
      retryAfterMs: retryAfterMsIn(response.headers['retry-after']),
    });
    response.resume();
    request.destroy();
  });
  let isAsking = false;
  socket.on('error', (error: NodeJS.ErrnoException) => {
    isAsking = !isOpen && error.code === 'ECONNRESET';
    if (isAsking) void routeStatus(opened, clock).then((refusal) => end(error.message, refusal));
    else end(error.message, isOpen ? undefined : { status: 0, retryAfterMs: 0, code: error.code ?? '' });
    socket.terminate();
  });
  socket.on('close', (code, reason) => isAsking || end(`closed with ${code} ${reason}`.trimEnd()));
  return {
    get bufferedBytes() {
      return socket.bufferedAmount;
    },
    // A text would go out in two pieces, its header and itself; a buffer is masked into one.
    send(text) {
      if (socket.readyState === WebSocket.OPEN) socket.send(Buffer.from(text), TEXT_FRAME);
    },
    close(code, reason) {
      over = true;
      if (socket.readyState !== WebSocket.OPEN) return socket.terminate();
      socket.close(code, closeReason(reason));
      const timer = clock.after(GOODBYE_MS, () => socket.terminate());
      socket.on('close', () => timer.cancel());
    },
  };
}

/**
 * Whoever runs on a Node older than 10 and knows nothing of WebSockets closes the connection when asked for one, without a
 * word. A plain request tells whether it knows the route: one that has the link answers 426 to that.
 */
async function routeStatus({ socket, endpoint, passage }: OpenedSocket, clock: Clock): Promise<HttpAnswer | undefined> {
  const { pathname: path } = new URL(socket.url);
  const asked = { endpoint, passage, method: 'GET', path, withinMs: ROUTE_WITHIN_MS } as const;
  const answer = await answerTo(asked, clock).catch(() => undefined);
  return answer?.status === 404 || answer?.status === 405 ? { ...answer, retryAfterMs: 0 } : undefined;
}
