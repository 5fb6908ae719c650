/**
 * One HTTP request to one address. A failure says whether the request may have arrived, because a
 * request that is not repeatable may be sent again only if it did not arrive. Redirects are not
 * followed: the token is for this address.
 */
import { Agent as HttpAgent, request as httpRequest, type IncomingMessage, type RequestOptions } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { isIP, type Socket } from 'node:net';
import { checkServerIdentity, type PeerCertificate } from 'node:tls';
import type { Clock } from '../platform/clock.ts';
import { messageOf } from '../platform/errors.ts';
import type { Address } from './address.ts';
import { type Credentials, tokenFor } from './credentials.ts';

export interface HttpCall {
  method: 'GET' | 'POST' | 'PUT' | 'DELETE';
  /** Path and query. */
  path: string;
  headers?: Record<string, string>;
  body?: string | undefined;
  /** Time limit until the head of the answer arrives. */
  withinMs: number;
  signal?: AbortSignal | undefined;
}

/** The address did not answer. */
export class CallFailure extends Error {
  readonly mayHaveArrived: boolean;

  constructor(why: string, mayHaveArrived: boolean, cause?: unknown) {
    super(why, { cause });
    this.mayHaveArrived = mayHaveArrived;
  }
}

const CONNECT_WITHIN_MS = 5000;
/** Maximum time between two pieces of an answer's body. */
const SILENCE_MS = 30_000;
export const MAX_BODY_BYTES = 64 * 1024 * 1024;

/** Connections to all addresses. They are kept open for requests that may be repeated. */
export class Connections {
  readonly #clock: Clock;
  readonly #given: Credentials | (() => Promise<Credentials>);
  #credentials: Promise<Credentials> | undefined;
  readonly #http = new HttpAgent({ keepAlive: true, maxSockets: 64 });
  readonly #https = new HttpsAgent({ keepAlive: true, maxSockets: 64 });

  constructor({ clock, credentials }: { clock: Clock; credentials: Credentials | (() => Promise<Credentials>) }) {
    this.#clock = clock;
    this.#given = credentials;
  }

  close(): void {
    this.#http.destroy();
    this.#https.destroy();
  }

  /**
   * Returns the answer; its body is still to be read. `fresh` opens a new connection. On a kept
   * one, which the other end may be closing, it would be unknown whether the request arrived.
   * @throws CallFailure, CredentialsError
   */
  async open(address: Address, call: HttpCall, { fresh }: { fresh: boolean }): Promise<IncomingMessage> {
    const { ca } = await this.#known();
    const token = await this.token(address);
    const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
    let connected = false;
    const fail = (error: unknown) => {
      timer.cancel();
      reject(error instanceof CallFailure ? error : new CallFailure(reasonOf(error), connected, error));
    };
    const request = this.#request(address, call, { fresh, token, ca });
    const late = () => {
      const why = connected ? `no answer within ${call.withinMs} ms` : `no connection within ${CONNECT_WITHIN_MS} ms`;
      request.destroy(new CallFailure(why, connected));
    };
    let timer = this.#clock.after(Math.min(CONNECT_WITHIN_MS, call.withinMs), late);
    const onConnected = () => {
      connected = true;
      timer.cancel();
      timer = this.#clock.after(call.withinMs, late);
    };
    request.on('socket', (socket: Socket) => {
      if (socket.connecting) socket.once(address.secure ? 'secureConnect' : 'connect', onConnected);
      else onConnected();
    });
    request.on('response', (response) => {
      timer.cancel();
      resolve(response);
    });
    request.on('error', fail);
    request.on('close', () => fail(new Error('the connection ended before the answer')));
    request.end(call.body);
    return promise;
  }

  /** Returns the token for this address. @throws CredentialsError */
  async token(address: Address): Promise<string | undefined> {
    return tokenFor(await this.#known(), address);
  }

  #known(): Promise<Credentials> {
    this.#credentials ??= Promise.resolve(typeof this.#given === 'function' ? this.#given() : this.#given);
    return this.#credentials;
  }

  /**
   * Returns the body as text.
   * @throws CallFailure when it breaks off, falls silent or is too large
   */
  async read(response: IncomingMessage): Promise<string> {
    const chunks: Buffer[] = [];
    let bytes = 0;
    for await (const chunk of this.pieces(response, SILENCE_MS)) {
      bytes += chunk.length;
      if (bytes > MAX_BODY_BYTES) throw new CallFailure(`the answer is larger than ${MAX_BODY_BYTES} bytes`, true);
      chunks.push(chunk);
    }
    return Buffer.concat(chunks).toString('utf8');
  }

  /**
   * Yields the body piece by piece; breaks off when nothing arrives for `silenceMs`.
   * @throws CallFailure
   */
  async *pieces(response: IncomingMessage, silenceMs: number): AsyncGenerator<Buffer> {
    const cut = () => response.destroy(new CallFailure(`nothing came for ${silenceMs / 1000} s`, true));
    let timer = this.#clock.after(silenceMs, cut);
    try {
      for await (const chunk of response as AsyncIterable<Buffer>) {
        timer.cancel();
        yield chunk;
        timer = this.#clock.after(silenceMs, cut);
      }
    } catch (error) {
      throw error instanceof CallFailure ? error : new CallFailure(reasonOf(error), true, error);
    } finally {
      timer.cancel();
      response.destroy();
    }
  }

  #request(address: Address, call: HttpCall, { fresh, token, ca }: { fresh: boolean } & Omit<Credentials, 'local'>) {
    const options: RequestOptions = {
      host: address.host,
      port: address.port,
      method: call.method,
      path: call.path,
      headers: {
        host: hostHeader(address),
        ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
        ...(call.body === undefined ? {} : { 'content-type': 'application/json' }),
        ...(call.body === undefined ? {} : { 'content-length': Buffer.byteLength(call.body) }),
        ...call.headers,
      },
      ...(call.signal === undefined ? {} : { signal: call.signal }),
    };
    if (!address.secure) return httpRequest({ ...options, agent: fresh ? false : this.#http });
    const tls = { ...(ca === undefined ? {} : { ca }), ...identityOf(address) };
    return httpsRequest({ ...options, ...tls, agent: fresh ? false : this.#https });
  }
}

/**
 * The TLS server name to request. The certificate must be valid for any one of the address's names.
 */
function identityOf({ name, otherNames = [] }: Address) {
  const names = [name, ...otherNames];
  const servername = names.find((one) => isIP(one) === 0) ?? '';
  if (names.length === 1) return { servername };
  return {
    servername,
    checkServerIdentity(_: string, certificate: PeerCertificate): Error | undefined {
      const errors = names.map((one) => checkServerIdentity(one, certificate));
      return errors.includes(undefined) ? undefined : errors[0];
    },
  };
}

function hostHeader({ name, port }: Address): string {
  return `${isIP(name) === 6 ? `[${name}]` : name}:${port}`;
}

/** Describes the error in words; Node's own texts assume knowledge of errno codes. */
function reasonOf(error: unknown): string {
  const { code } = (error ?? {}) as NodeJS.ErrnoException;
  const known: Record<string, string> = {
    ECONNREFUSED: 'connection refused',
    ECONNRESET: 'connection reset',
    EPIPE: 'connection reset',
    ENOTFOUND: 'no such host name',
    EAI_AGAIN: 'the host name cannot be resolved now',
    EHOSTUNREACH: 'no route to the host',
    ENETUNREACH: 'no route to the network',
    ETIMEDOUT: 'no connection in time',
    DEPTH_ZERO_SELF_SIGNED_CERT: 'its certificate is self-signed; name its CA with CNAPI_CA_FILE',
    SELF_SIGNED_CERT_IN_CHAIN: 'its CA is not trusted; name it with CNAPI_CA_FILE',
    UNABLE_TO_VERIFY_LEAF_SIGNATURE: 'its CA is not trusted; name it with CNAPI_CA_FILE',
    UNABLE_TO_GET_ISSUER_CERT_LOCALLY: 'its CA is not trusted; name it with CNAPI_CA_FILE',
    CERT_HAS_EXPIRED: 'its certificate has expired',
    ERR_SSL_WRONG_VERSION_NUMBER: 'it does not speak TLS; use http://',
    EPROTO: 'it does not speak TLS; use http://',
  };
  return known[code ?? ''] ?? messageOf(error);
}
