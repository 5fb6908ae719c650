/**
 * How an agent authenticates to instances (a token) and checks them (TLS with certificates of a
 * trusted CA). Token and CA are read from their files at each connection, so they can be replaced
 * while the agent runs. Shared by the link, the legacy protocol and the fleet. Whether TLS is used
 * is fixed for the agent's whole life; no instance can make it drop TLS.
 */
import { X509Certificate } from 'node:crypto';
import { createSecureContext, type SecureContext } from 'node:tls';
import { messageOf } from '../../platform/errors.ts';
import type { TlsTarget } from '../../platform/http-client/connect.ts';
import type { Logger } from '../../platform/log.ts';
import { isLoopback } from '../../platform/network/networks.ts';
import { ReloadedFile } from '../reloaded-file.ts';
import type { Endpoint } from './endpoints.ts';

export interface CredentialOptions {
  tls: boolean;
  /** PEM file; without it, the system's CAs are trusted. */
  caFile?: string | undefined;
  /**
   * The name that certificates are checked against. Default: the name that was looked up, or the
   * address dialled.
   */
  tlsName?: string | undefined;
  tokenFile?: string | undefined;
  /** Used when `tokenFile` is not set, as soon as the file exists. */
  usualTokenFile?: string | undefined;
}

/** What a connection to one endpoint needs. */
export interface ConnectionCredentials {
  /** How to use TLS; undefined for a connection without it. */
  tls: TlsTarget | undefined;
  headers: Record<string, string>;
}

export interface AgentCredentials {
  credentialsTo(endpoint: Endpoint): ConnectionCredentials;
}

/** Credentials with neither token nor TLS. */
export const NO_CREDENTIALS: AgentCredentials = { credentialsTo: () => ({ tls: undefined, headers: {} }) };

const MAX_TOKEN_BYTES = 4096;
const MAX_CA_BYTES = 1024 * 1024;
/** Characters that a header can carry. The instance checks the rest. */
const TOKEN = /^[\x21-\x7e]+$/;

/** @throws Error naming the option and the file that cannot be used */
export function openCredentials(options: CredentialOptions, log: Logger): AgentCredentials {
  const { tls, caFile, tokenFile, usualTokenFile } = options;
  const token = tokenFile ?? usualTokenFile;
  const kept = {
    token: token === undefined ? undefined : keptToken(token, log),
    ca: tls && caFile !== undefined ? keptCa(caFile, log) : undefined,
  };
  if (tokenFile !== undefined) usable('--token-file', () => kept.token?.load());
  usable('--ca', () => kept.ca?.load());
  return new FileCredentials(options, kept, log);
}

class FileCredentials implements AgentCredentials {
  readonly #options: CredentialOptions;
  readonly #token: ReloadedFile<string> | undefined;
  readonly #ca: ReloadedFile<SecureContext> | undefined;
  readonly #log: Logger;
  #hasWarned = false;

  constructor(
    options: CredentialOptions,
    kept: { token: ReloadedFile<string> | undefined; ca: ReloadedFile<SecureContext> | undefined },
    log: Logger,
  ) {
    this.#options = options;
    this.#token = kept.token;
    this.#ca = kept.ca;
    this.#log = log;
  }

  credentialsTo(endpoint: Endpoint): ConnectionCredentials {
    const { tls, tlsName = endpoint.name ?? endpoint.host } = this.#options;
    const token = this.#token?.read();
    if (!tls && token !== undefined) this.#warnOfEavesdroppers(endpoint);
    return {
      tls: tls ? { names: [tlsName], secureContext: this.#ca?.read() } : undefined,
      headers: token === undefined ? {} : { Authorization: `Bearer ${token}` },
    };
  }

  #warnOfEavesdroppers({ host }: Endpoint): void {
    if (this.#hasWarned || isLoopback(host)) return;
    this.#hasWarned = true;
    this.#log.warn({ host }, 'token: sent over the network unencrypted; use https:// or --tls');
  }
}

function keptToken(path: string, log: Logger): ReloadedFile<string> {
  const parse = (text: string) => {
    const token = text.trim();
    if (!TOKEN.test(token)) throw new Error('it does not hold one token');
    return token;
  };
  const complain = (reason: string) =>
    log.warn({ reason }, 'token: the token file cannot be used; put a valid token into the file of --token-file');
  return new ReloadedFile({ path, maxBytes: MAX_TOKEN_BYTES, protection: 'secret', parse, complain });
}

/** One context for all connections: creating one takes milliseconds and memory. */
function keptCa(path: string, log: Logger): ReloadedFile<SecureContext> {
  const parse = (ca: string) => {
    new X509Certificate(ca);
    return createSecureContext({ ca, minVersion: 'TLSv1.2' });
  };
  const complain = (reason: string) =>
    log.warn({ reason }, 'tls: the CA file cannot be used; put a valid certificate into the file of --ca');
  return new ReloadedFile({ path, maxBytes: MAX_CA_BYTES, protection: 'none', parse, complain });
}

function usable(option: string, load: () => unknown): void {
  try {
    load();
  } catch (cause) {
    throw new Error(`${option} ${messageOf(cause)}`, { cause });
  }
}
