/**
 * Who may knock, decided from a request's first lines alone. Pure; called by the listener before anything else.
 * Who comes from a trusted place needs no token, and a browser there is the one stranger left: a page of a foreign origin, or
 * a foreign name that was rebound to our address, is turned away. A token no page has.
 */
import type { IncomingMessage } from 'node:http';
import { isIP } from 'node:net';
import { isLoopback } from '../access/networks.ts';
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
  /** It brings a token, good or not. */
  hasToken: boolean;
}

export function knockOf(request: Knocking, scheme: Knock['scheme']): Knock {
  const { url = '', httpVersion, headers, headersDistinct } = request;
  const hasToken = headers.authorization !== undefined;
  return { url, httpVersion, hosts: headersDistinct.host ?? [], origin: headers.origin, scheme, hasToken };
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

/** What means us. */
export interface OwnNames {
  /** Lower-case host names. */
  names: ReadonlySet<string>;
  /** Where tokens are asked for we may be reached by any address of ours, which no foreign name can pretend to be. */
  anyAddress: boolean;
}

/** The reason to turn a request away, if there is one. */
export function reasonToRefuse(knock: Knock, own: OwnNames): CnapiError | undefined {
  if (knock.url.length > MAX_URL_CHARS)
    return new RequestTooLargeError(`The URL is longer than ${MAX_URL_CHARS} characters`, 414);
  if (!knock.url.startsWith('/')) return new InvalidContentError('The request target is not a path');
  const [host, ...others] = knock.hosts;
  if (others.length > 0 || (host === undefined && knock.httpVersion !== '1.0'))
    return new InvalidContentError('The request has not one Host header');
  if (host !== undefined && !isOurs(host, own, knock.hasToken)) {
    return new ForbiddenError(
      `Host ${printable(host)} is not a name of this service; use its address or one of its names`,
    );
  }
  if (knock.origin !== undefined && !isSameOrigin(knock.origin, knock.scheme, host)) {
    return new ForbiddenError(`Requests from pages of ${printable(knock.origin)} are refused`);
  }
  return undefined;
}

/** Where tokens are asked for, whoever brings one may know us by whatever name. */
function isOurs(hostHeader: string, { names, anyAddress }: OwnNames, hasToken: boolean): boolean {
  const match = /^(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::\d{1,5})?$/.exec(hostHeader.toLowerCase());
  const name = match?.[1]?.replace(/\.$/, '');
  // What looks like an address or a port may still be none, and would make the router throw.
  if (name === undefined || !URL.canParse(`http://${hostHeader}/`)) return false;
  if (hasToken && anyAddress) return true;
  const bare = name.replace(/^\[(.*)\]$/, '$1');
  return isLoopback(bare) || names.has(name) || (anyAddress && isIP(bare) !== 0);
}

function isSameOrigin(origin: string, scheme: string, host: string | undefined): boolean {
  return host !== undefined && origin.toLowerCase() === `${scheme}://${host.toLowerCase()}`;
}

function printable(text: string): string {
  return text.replace(/[^\x20-\x7e]/g, '?').slice(0, 100);
}
