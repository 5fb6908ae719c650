/**
 * Decides from a request's first lines alone whether to refuse it. Pure; called by the listener
 * before anything else. A caller at a trusted address needs no token, so a browser there could be
 * misused: a page of a foreign origin, or under a foreign name that was rebound to our address, is
 * refused. Such a page has no token.
 */
import type { IncomingMessage } from 'node:http';
import { isIP } from 'node:net';
import type { CnapiError } from '../../../platform/errors.ts';
import { isLoopback } from '../../../platform/network/networks.ts';
import { carriesToken } from '../../access/token.ts';
import { ForbiddenError, InvalidContentError, printable, RequestTooLargeError } from '../http-errors.ts';

export const MAX_URL_CHARS = 8 * 1024;

/** Elsewhere a signature is ignored, and proves nothing about the caller. */
const SIGNED_PATH = /^\/organizations\/[^/?]+\/pushy\//;

const DOT_SEGMENT = /^(?:\.|%2e){1,2}$/i;

interface RequestHead {
  url: string;
  httpVersion: string;
  /** All Host headers of the request. */
  hosts: readonly string[];
  /** The Transfer-Encoding header. */
  transferCodings: string | undefined;
  origin: string | undefined;
  /** The scheme of this port. */
  scheme: 'http' | 'https';
  /**
   * Whether the request brings a token, valid or not, or a signature where that is always checked.
   */
  hasToken: boolean;
}

export function readRequestHead(request: RawRequest, scheme: RequestHead['scheme']): RequestHead {
  const { url = '', httpVersion, headers, headersDistinct } = request;
  const hasSignature = headers['x-ops-sign'] !== undefined && SIGNED_PATH.test(url);
  const hasToken = carriesToken(headersDistinct.authorization ?? []) || hasSignature;
  const { origin, 'transfer-encoding': transferCodings } = headers;
  return { url, httpVersion, hosts: headersDistinct.host ?? [], transferCodings, origin, scheme, hasToken };
}
type RawRequest = Pick<IncomingMessage, 'url' | 'httpVersion' | 'headers' | 'headersDistinct'>;

/** The host names, besides loopback's, that a request may use for this instance. */
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

/** Names and addresses that mean this instance. */
export interface OwnNames {
  /** Lower-case host names. */
  names: ReadonlySet<string>;
  /**
   * If tokens are required, any address of this instance may be used: a foreign name cannot look
   * like one.
   */
  anyAddress: boolean;
}

/** Why a request is refused; undefined if it is not. */
export function reasonToRefuse(head: RequestHead, own: OwnNames): CnapiError | undefined {
  if (head.url.length > MAX_URL_CHARS)
    return new RequestTooLargeError(`The URL is longer than ${MAX_URL_CHARS} characters`, 414);
  if (!head.url.startsWith('/')) return new InvalidContentError('The request target is not a path');
  if (isAmbiguous(head.url))
    return new InvalidContentError(
      'The path begins with //, or has a segment . or .., a backslash, a # or white space',
    );
  // Node reads any list that ends in `chunked`; a proxy may see another end of the body (RFC 9112,
  // 6.1).
  if (head.transferCodings !== undefined && head.transferCodings.trim().toLowerCase() !== 'chunked')
    return new InvalidContentError('The only Transfer-Encoding that is supported is chunked');
  const [host, ...others] = head.hosts;
  if (others.length > 0 || (host === undefined && head.httpVersion !== '1.0'))
    return new InvalidContentError('The request must have exactly one Host header');
  if (host !== undefined && !isOurs(host, own, head.hasToken)) {
    return new ForbiddenError(
      `Host ${printable(host)} is not a name of this service; use its address or one of its names`,
    );
  }
  if (head.origin !== undefined && !isSameOrigin(head.origin, head.scheme, host)) {
    return new ForbiddenError(`Requests from pages of ${printable(head.origin)} are refused`);
  }
  return undefined;
}

/**
 * The router would resolve such a path to another one than proxies, the audit and signatures see.
 */
function isAmbiguous(url: string): boolean {
  const [path = ''] = url.split('?', 1);
  return path.startsWith('//') || /[\\#\s]/.test(path) || path.split('/').some((one) => DOT_SEGMENT.test(one));
}

/** If tokens are required, a caller with a token may use any name. */
function isOurs(hostHeader: string, { names, anyAddress }: OwnNames, hasToken: boolean): boolean {
  const match = /^(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::\d{1,5})?$/.exec(hostHeader.toLowerCase());
  const name = match?.[1]?.replace(/\.$/, '');
  // Text that looks like an address or a port may still be invalid, and would make the router
  // throw.
  if (name === undefined || !URL.canParse(`http://${hostHeader}/`)) return false;
  if (hasToken && anyAddress) return true;
  const bare = name.replace(/^\[(.*)\]$/, '$1');
  return isLoopback(bare) || names.has(name) || (anyAddress && isIP(bare) !== 0);
}

function isSameOrigin(origin: string, scheme: string, host: string | undefined): boolean {
  return host !== undefined && origin.toLowerCase() === `${scheme}://${host.toLowerCase()}`;
}

/**
 * Why a request that offers a WebSocket cannot begin one (RFC 6455, section 4.1; RFC 9110, sections
 * 7.8 and 10.1.1). The bytes of a body would be read as frames.
 */
export function reasonNotAHandshake({ headers, httpVersion }: Handshake): string | undefined {
  if (httpVersion !== '1.1') return 'A WebSocket begins with a request of HTTP/1.1';
  if (headers['transfer-encoding'] !== undefined || (headers['content-length'] ?? '0') !== '0')
    return 'The request for a WebSocket has a body; send it without Content-Length and Transfer-Encoding';
  if (headers.expect !== undefined) return 'The request for a WebSocket has an Expect header; send it without one';
  return undefined;
}
type Handshake = Pick<IncomingMessage, 'headers' | 'httpVersion'>;

/** Ignores an offer of another protocol (`h2c`), as HTTP permits. */
export function wantsWebSocket({ headers }: IncomingMessage): boolean {
  return headers.upgrade?.toLowerCase() === 'websocket';
}
