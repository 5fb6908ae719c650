/**
 * One HTTP request to one address, with the token and the TLS names of that address. Redirects are
 * not followed: the token is for this address.
 */
import { createSecureContext, type SecureContext } from 'node:tls';
import { type ClientOptions, WebSocket } from 'ws';
import { buildTlsOptions, hostAndPort } from '../platform/http-client/connect.ts';
import { HttpClient, type HttpRequest } from '../platform/http-client/http-client.ts';
import type { HttpError } from '../platform/http-client/http-error.ts';
import type { HttpAnswer } from '../platform/http-client/pending-request.ts';
import type { Clock } from '../platform/time/clock.ts';
import type { Address } from './address.ts';
import { type Credentials, tokenFor } from './credentials.ts';

export interface HttpCall extends Pick<HttpRequest, 'method' | 'path' | 'headers' | 'body' | 'signal'> {
  /** Time limit until the head of the answer arrives. */
  withinMs: number;
}

export interface UpgradeOptions {
  protocol: string;
  socket: Pick<ClientOptions, 'perMessageDeflate' | 'maxPayload'>;
}

const UPGRADE_WITHIN_MS = 10_000;
/** Maximum time between two pieces of an answer's body. */
const SILENCE_MS = 30_000;
const MAX_BODY_BYTES = 64 * 1024 * 1024;

/** Connections to all addresses. They are kept open for requests that may be repeated. */
export class Connections {
  readonly #http: HttpClient;
  readonly #readCredentials: () => Promise<Credentials>;
  #known: Promise<{ credentials: Credentials; secureContext: SecureContext | undefined }> | undefined;

  constructor({ clock, credentials }: { clock: Clock; credentials: () => Promise<Credentials> }) {
    this.#http = new HttpClient({ clock });
    this.#readCredentials = credentials;
  }

  close(): void {
    this.#http.close();
  }

  /**
   * Returns the answer; its body is still to be read. `fresh` opens a new connection. On a kept
   * one, which the other end may be closing, it would be unknown whether the request arrived.
   * @throws HttpError, CredentialsError
   */
  async open(address: Address, call: HttpCall, { fresh }: { fresh: boolean }): Promise<HttpAnswer> {
    const { secureContext } = await this.#read();
    const token = await this.token(address);
    const { host, port, name, otherNames = [], secure } = address;
    const { withinMs, method, path, body, signal } = call;
    const headers = {
      ...(token !== undefined && { authorization: `Bearer ${token}` }),
      ...(body !== undefined && { 'content-type': 'application/json' }),
      ...call.headers,
    };
    const tls = secure ? { names: [name, ...otherNames], secureContext } : undefined;
    const target = { host, port, name, tls };
    return this.#http.request({ target, method, path, headers, body, headMs: withinMs, signal, keepAlive: !fresh });
  }

  /** Opens a WebSocket, whose events the caller listens to. @throws CredentialsError */
  async upgrade(address: Address, path: string, { protocol, socket }: UpgradeOptions): Promise<WebSocket> {
    const { secureContext } = await this.#read();
    const token = await this.token(address);
    const { host, port, name, otherNames = [], secure } = address;
    const tls = { names: [name, ...otherNames], secureContext };
    return new WebSocket(`${secure ? 'wss' : 'ws'}://${hostAndPort({ host, port })}${path}`, protocol, {
      ...socket,
      ...(secure && buildTlsOptions(tls)),
      headers: {
        host: hostAndPort({ host: name, port }),
        ...(token !== undefined && { authorization: `Bearer ${token}` }),
      },
      followRedirects: false,
      handshakeTimeout: UPGRADE_WITHIN_MS,
    });
  }

  /** Returns the token for this address. @throws CredentialsError */
  async token(address: Address): Promise<string | undefined> {
    return tokenFor((await this.#read()).credentials, address);
  }

  #read() {
    this.#known ??= this.#readCredentials().then((credentials) => {
      const { ca } = credentials;
      return { credentials, secureContext: ca === undefined ? undefined : createSecureContext({ ca }) };
    });
    return this.#known;
  }
}

/** Returns the body. @throws HttpError when it breaks off, falls silent or is too large */
export function bodyOf(answer: HttpAnswer): Promise<string> {
  return answer.text({ maxBytes: MAX_BODY_BYTES, silenceMs: SILENCE_MS });
}

/** Why an address gave no answer, and what to do. */
export function describeHttpError({ reason, kind }: HttpError): string {
  if (kind === 'untrusted') return `${reason}; name its CA with CNAPI_CA_FILE`;
  return kind === 'no-tls' ? `${reason}; use http://` : reason;
}
