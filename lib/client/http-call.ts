/**
 * One HTTP request to one address. Says of a failure whether the request may have reached anybody, because only one that
 * did not may be made again whatever it does. Redirects are not followed: the token is for this address.
 */
import { Agent as HttpAgent, request as httpRequest, type IncomingMessage, type RequestOptions } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { isIP, type Socket } from 'node:net';
import { checkServerIdentity, type PeerCertificate } from 'node:tls';
import { messageOf } from '../errors.ts';
import type { Clock } from '../ports/clock.ts';
import type { Address } from './address.ts';
import type { Credentials } from './credentials.ts';

export interface HttpCall {
  method: 'GET' | 'POST' | 'PUT' | 'DELETE';
  /** With its query. */
  path: string;
  headers?: Record<string, string>;
  body?: string | undefined;
  /** Until the head of the answer has come. */
  withinMs: number;
  signal?: AbortSignal | undefined;
}

/** The address gave no answer. */
export class CallFailure extends Error {
  readonly mayHaveArrived: boolean;

  constructor(why: string, mayHaveArrived: boolean, cause?: unknown) {
    super(why, { cause });
    this.mayHaveArrived = mayHaveArrived;
  }
}

const CONNECT_WITHIN_MS = 5000;
/** Of an answer's body, between two pieces. */
const SILENCE_MS = 30_000;
export const MAX_BODY_BYTES = 64 * 1024 * 1024;

/** Connections to all addresses, kept for requests that may be repeated. */
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
   * The answer, its body still to be read. `fresh`: on a connection of its own, so that one that its other end was just
   * closing does not leave it open whether the request arrived. @throws CallFailure, CredentialsError
   */
  async open(address: Address, call: HttpCall, { fresh }: { fresh: boolean }): Promise<IncomingMessage> {
    this.#credentials ??= Promise.resolve(typeof this.#given === 'function' ? this.#given() : this.#given);
    const credentials = await this.#credentials;
    const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
    let connected = false;
    const fail = (error: unknown) => {
      timer.cancel();
      reject(error instanceof CallFailure ? error : new CallFailure(reasonOf(error), connected, error));
    };
    const request = this.#request(address, call, { fresh, credentials });
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

  /** The body as text. @throws CallFailure when it breaks off, falls silent or is too large */
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

  /** The body piece by piece; broken off when nothing comes for so long. @throws CallFailure */
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

  #request(address: Address, call: HttpCall, { fresh, credentials }: { fresh: boolean; credentials: Credentials }) {
    const { token, ca } = credentials;
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

/** What to ask for, and what the certificate that comes must be for: any one of the address's names. */
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

/** In words for people; Node's own are for those who know errno by heart. */
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
