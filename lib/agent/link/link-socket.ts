/**
 * One WebSocket to one instance, as the link driver uses it. `dialWebSocket` makes real ones; the
 * fleet wraps it to make them silent, slow or cut. A socket emits nothing after `closed`, and never
 * throws.
 */
import type { Duplex } from 'node:stream';
import { WebSocket } from 'ws';
import { buildTlsOptions, hostAndPort } from '../../platform/http-client/connect.ts';
import { HttpClient } from '../../platform/http-client/http-client.ts';
import type { Clock } from '../../platform/time/clock.ts';
import { closeReason } from '../../protocol/link/close-reason.ts';
import type { ValueBudget } from '../../protocol/link/codec.ts';
import { ReadLimiter } from '../../protocol/link/read-limiter.ts';
import { type AgentCredentials, type ConnectionCredentials, NO_CREDENTIALS } from './credentials.ts';
import type { Endpoint } from './endpoints.ts';
import { type CnapiAnswer, requestCnapi, retryAfterMsIn } from './http-request.ts';

/** The parser charges the values of received frames to the socket. */
export interface LinkSocket extends ValueBudget {
  /** Bytes sent that the network has not yet taken. */
  readonly bufferedBytes: number;
  send(text: string): void;
  /**
   * Sends a close frame and waits GOODBYE_MS for the answer. The reason is cut to what the frame
   * holds.
   */
  close(code: number, reason: string): void;
}

export interface LinkSocketEvents {
  /** The connection attempt begins; its time limit counts from here. */
  begun(): void;
  opened(): void;
  /** Bytes of any kind arrived: a sign of life. */
  heard(): void;
  received(text: string): void;
  /**
   * Emitted once, as the last event: the connection failed or is over. `refusal` is given when it
   * failed with an HTTP answer or a known error.
   */
  closed(reason: string, refusal?: UpgradeRefusal): void;
}

/** Status 0 when no answer came; `code` is then the system's error code. */
export interface UpgradeRefusal extends CnapiAnswer {
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
    const socket = createLinkSocket(opened, events, clock);
    events.begun();
    return socket;
  };
}

/** A connection attempt, its target and what it connects with. */
interface OpenedSocket {
  socket: WebSocket;
  endpoint: Endpoint;
  credentials: ConnectionCredentials;
}

export function openWebSocket(target: DialTarget, credentials: AgentCredentials): OpenedSocket {
  const { endpoint, serverUuid, maxFrameBytes, localAddress } = target;
  if (!/^[\w.:-]+$/.test(endpoint.host)) throw new Error('not a host name');
  const connectionCredentials = credentials.credentialsTo(endpoint);
  const scheme = connectionCredentials.tls ? 'wss' : 'ws';
  const socket = new WebSocket(`${scheme}://${hostAndPort(endpoint)}/agents/${serverUuid}/link`, {
    ...(connectionCredentials.tls && buildTlsOptions(connectionCredentials.tls)),
    headers: connectionCredentials.headers,
    perMessageDeflate: false,
    maxPayload: maxFrameBytes,
    followRedirects: false,
    ...(localAddress === undefined ? {} : { localAddress }),
  });
  return { socket, endpoint, credentials: connectionCredentials };
}

export function createLinkSocket(opened: OpenedSocket, events: LinkSocketEvents, clock: Clock): LinkSocket {
  const { socket } = opened;
  let wire: Duplex | undefined;
  let isClosed = false;
  const reads = new ReadLimiter(socket, { clock });
  const end = (reason: string, refusal?: UpgradeRefusal) => {
    if (isClosed) return;
    isClosed = true;
    events.closed(reason, refusal);
  };
  socket.on('upgrade', (response) => {
    wire = response.socket;
  });
  let isOpen = false;
  socket.on('open', () => {
    isOpen = true;
    wire?.on('data', (chunk: Buffer) => {
      reads.consumeRead(chunk, clock.now());
      if (!isClosed) events.heard();
    });
    if (!isClosed) events.opened();
  });
  socket.on('message', (data, isBinary) => {
    if (!isClosed) events.received(isBinary ? '' : String(data));
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
  socket.on('close', (code, reason) => {
    reads.end();
    if (!isAsking) end(`closed with ${code} ${reason}`.trimEnd());
  });
  return {
    get bufferedBytes() {
      return socket.bufferedAmount;
    },
    consumeValues: (values) => reads.consumeValues(values),
    // ws sends a string in two pieces, header and text; it masks a buffer into one piece.
    send(text) {
      if (socket.readyState === WebSocket.OPEN) socket.send(Buffer.from(text), TEXT_FRAME);
    },
    close(code, reason) {
      isClosed = true;
      if (socket.readyState !== WebSocket.OPEN) return socket.terminate();
      socket.close(code, closeReason(reason));
      const timer = clock.after(GOODBYE_MS, () => socket.terminate());
      socket.on('close', () => timer.cancel());
    },
  };
}

/**
 * A Node older than 10 without WebSockets closes a connection that asks for an upgrade, without an
 * answer. A plain request shows whether it knows the route: a server with the link answers it with
 * 426.
 */
async function routeStatus(
  { socket, endpoint, credentials }: OpenedSocket,
  clock: Clock,
): Promise<CnapiAnswer | undefined> {
  const { pathname: path } = new URL(socket.url);
  const asked = { endpoint, credentials, method: 'GET', path, withinMs: ROUTE_WITHIN_MS } as const;
  const answer = await requestCnapi(new HttpClient({ clock }), asked).catch(() => undefined);
  return answer?.status === 404 || answer?.status === 405 ? { ...answer, retryAfterMs: 0 } : undefined;
}
