/**
 * Who may knock, decided from a request's first lines alone. Pure; called by the listener before anything else.
 * Until credentials can be configured an instance listens on loopback only, and a browser there is the one stranger
 * left: a page of a foreign origin, or a foreign name that was rebound to 127.0.0.1, is turned away.
 */
import type { IncomingMessage } from 'node:http';
import type { CnapiError } from '../errors.ts';
import { ForbiddenError, InvalidContentError, RequestTooLargeError } from './http-errors.ts';

export const MAX_URL_CHARS = 8 * 1024;

export interface Knock {
  url: string;
  httpVersion: string;
  /** As many as were given. */
  hosts: readonly string[];
  origin: string | undefined;
  /** As this port speaks it. */
  scheme: 'http' | 'https';
}

export function knockOf(request: Knocking, scheme: Knock['scheme']): Knock {
  const { url = '', httpVersion, headers, headersDistinct } = request;
  return { url, httpVersion, hosts: headersDistinct.host ?? [], origin: headers.origin, scheme };
}
type Knocking = Pick<IncomingMessage, 'url' | 'httpVersion' | 'headers' | 'headersDistinct'>;

/** The host names, loopback's aside, under which a request may ask for this instance. */
export function namesOf(named: NamesGiven): ReadonlySet<string> {
  const { host, advertiseHost = host, datacenter, domain } = named;
  return new Set([host, advertiseHost, `cnapi.${datacenter}.${domain}`].map((name) => name.toLowerCase()));
}
interface NamesGiven {
  host: string;
  advertiseHost?: string | undefined;
  datacenter: string;
  domain: string;
}

/** The reason to turn a request away, if there is one. `names` are the lower-case host names that mean us. */
export function reasonToRefuse(knock: Knock, names: ReadonlySet<string>): CnapiError | undefined {
  if (knock.url.length > MAX_URL_CHARS)
    return new RequestTooLargeError(`The URL is longer than ${MAX_URL_CHARS} characters`, 414);
  if (!knock.url.startsWith('/')) return new InvalidContentError('The request target is not a path');
  const [host, ...others] = knock.hosts;
  if (others.length > 0 || (host === undefined && knock.httpVersion !== '1.0'))
    return new InvalidContentError('The request has not one Host header');
  if (host !== undefined && !isOurs(host, names)) {
    return new ForbiddenError(
      `Host ${printable(host)} is not a name of this service; use its address or one of its names`,
    );
  }
  if (knock.origin !== undefined && !isSameOrigin(knock.origin, knock.scheme, host)) {
    return new ForbiddenError(`Requests from pages of ${printable(knock.origin)} are refused`);
  }
  return undefined;
}

/** True for an address or name that only this machine can reach itself by. */
export function isLoopback(host: string): boolean {
  const name = host.toLowerCase().replace(/^\[(.*)\]$/, '$1');
  return name === 'localhost' || name === '::1' || /^127\.\d{1,3}\.\d{1,3}\.\d{1,3}$/.test(name);
}

function isOurs(hostHeader: string, names: ReadonlySet<string>): boolean {
  const match = /^(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::\d{1,5})?$/.exec(hostHeader.toLowerCase());
  const name = match?.[1]?.replace(/\.$/, '');
  // What looks like an address or a port may still be none, and would make the router throw.
  return name !== undefined && URL.canParse(`http://${hostHeader}/`) && (isLoopback(name) || names.has(name));
}

function isSameOrigin(origin: string, scheme: string, host: string | undefined): boolean {
  return host !== undefined && origin.toLowerCase() === `${scheme}://${host.toLowerCase()}`;
}

function printable(text: string): string {
  return text.replace(/[^\x20-\x7e]/g, '?').slice(0, 100);
}
