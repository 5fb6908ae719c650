/** Where a request goes, and how a connection to there is opened. */
import { connect, isIP, type Socket } from 'node:net';
import { type ConnectionOptions, checkServerIdentity, connect as connectTls, type SecureContext } from 'node:tls';
import type { buildConnector } from 'undici';
import type { Clock } from '../time/clock.ts';

export interface HttpTarget {
  /** An IP address is used as it is; a name is resolved by the system. */
  host: string;
  port: number;
  /** Sent as the Host header, with the port. Default: `host`. */
  name?: string;
  tls?: TlsTarget | undefined;
  /** A local address to connect from. */
  localAddress?: string | undefined;
}

export interface TlsTarget {
  /** The certificate must be valid for one of them. The first host name is requested. */
  names: readonly string[];
  /** Contains the CAs to trust. Default: those of the system. */
  secureContext?: SecureContext | undefined;
  /** False: any certificate is accepted. For requests that hold no secret. */
  isVerified?: false;
}

/** The operating system detects a lost peer after some minutes instead of hours. */
const KEEPALIVE_AFTER_MS = 60_000;

/** Where a URL leads. @throws TypeError */
export function targetOf(text: string | URL): HttpTarget {
  const { protocol, hostname, port } = new URL(text);
  const secure = protocol === 'https:';
  const host = hostname.replace(/^\[|\]$/g, '');
  return { host, port: Number(port || (secure ? 443 : 80)), ...(secure && { tls: { names: [host] } }) };
}

export function hostAndPort({ host, port }: Pick<HttpTarget, 'host' | 'port'>): string {
  return `${isIP(host) === 6 ? `[${host}]` : host}:${port}`;
}

export function buildTlsOptions({ names, secureContext, isVerified }: TlsTarget): ConnectionOptions {
  return {
    minVersion: 'TLSv1.2',
    // SNI allows host names only, no addresses.
    servername: names.find((name) => isIP(name) === 0) ?? '',
    checkServerIdentity(_dialled, certificate) {
      const errors = names.map((name) => checkServerIdentity(name, certificate));
      return errors.includes(undefined) ? undefined : errors[0];
    },
    rejectUnauthorized: isVerified !== false,
    ...(secureContext && { secureContext }),
  };
}

export interface ConnectorDeps {
  clock: Clock;
  target: HttpTarget;
  connectMs: number;
  /** Called with each socket before it is connected. */
  onSocket(socket: Socket): void;
}

/**
 * Opens connections to one target for undici. TLS sessions are not resumed: Node would not check
 * the names of a resumed one.
 */
export function connectorTo({ clock, target, connectMs, onSocket }: ConnectorDeps): buildConnector.connector {
  return (_options, callback) => {
    const { host, port, tls, localAddress } = target;
    const to = { host, port, ...(localAddress !== undefined && { localAddress }) };
    const socket = tls ? connectTls({ ...to, ...buildTlsOptions(tls), ALPNProtocols: ['http/1.1'] }) : connect(to);
    socket.setNoDelay(true).setKeepAlive(true, KEEPALIVE_AFTER_MS);
    const late = () => socket.destroy(new Error(`no connection within ${connectMs} ms`));
    const timer = clock.after(connectMs, late);
    // Without its code: undici treats some of them specially, and would connect again and again.
    const onError = (cause: Error) => callback(new Error(cause.message, { cause }), null);
    socket.once('error', onError);
    socket.once('close', () => timer.cancel());
    socket.once(tls ? 'secureConnect' : 'connect', () => {
      timer.cancel();
      socket.off('error', onError);
      callback(null, socket);
    });
    onSocket(socket);
  };
}
