/** The agent's ends of streams: it opens a WebSocket to the instance where the caller waits. */
import { WebSocket } from 'ws';
import { messageOf } from '../../platform/errors.ts';
import { buildTlsOptions, hostAndPort } from '../../platform/http-client/connect.ts';
import type { Clock } from '../../platform/time/clock.ts';
import { STREAM_SUBPROTOCOL, type StreamPlace } from '../../protocol/streams/stream.ts';
import { keepAlive, STREAM_SOCKET } from '../../protocol/streams/stream-socket.ts';
import type { AgentCredentials } from '../link/credentials.ts';
import { TaskFailure } from '../task-failure.ts';
import { JoinedStream } from './joined-stream.ts';

interface AgentStreamsDeps {
  clock: Clock;
  serverUuid: string;
  credentials: AgentCredentials;
  /** A local address to connect from. */
  localAddress?: string | undefined;
}

const OPEN_WITHIN_MS = 10_000;

export class AgentStreams {
  readonly #deps: AgentStreamsDeps;

  constructor(deps: AgentStreamsDeps) {
    this.#deps = deps;
  }

  /**
   * Resolves when it is open. @throws TaskFailure if nobody waits there, or it cannot be reached
   */
  join({ name, host, port }: StreamPlace): Promise<JoinedStream> {
    const { serverUuid, credentials, localAddress } = this.#deps;
    const endpoint = { host, port };
    const { tls, headers } = credentials.credentialsTo(endpoint);
    const url = `${tls ? 'wss' : 'ws'}://${hostAndPort(endpoint)}/agents/${serverUuid}/streams/${name}`;
    const socket = new WebSocket(url, STREAM_SUBPROTOCOL, {
      ...(tls && buildTlsOptions(tls)),
      ...STREAM_SOCKET,
      headers,
      followRedirects: false,
      handshakeTimeout: OPEN_WITHIN_MS,
      ...(localAddress === undefined ? {} : { localAddress }),
    });
    return new Promise((resolve, reject) => {
      socket.on('upgrade', ({ socket: connection }) => keepAlive(connection));
      // Before any message can arrive.
      socket.on('open', () => resolve(new JoinedStream(socket, this.#deps.clock)));
      socket.on('error', (cause) => {
        const message = `The stream cannot be opened at ${hostAndPort(endpoint)}: ${messageOf(cause)}`;
        reject(new TaskFailure('StreamLost', message, { cause }));
      });
    });
  }
}
