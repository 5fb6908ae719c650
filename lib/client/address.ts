/** Addresses of instances: given by the caller or found by DNS. Used by failover-client.ts. */
import { isIP } from 'node:net';
import { lookUpHost } from '../platform/dns/host-lookup.ts';
import { resolveInstances } from '../platform/dns/resolve.ts';
import { serviceName } from '../platform/dns/zone.ts';
import { CnapiError } from '../platform/errors.ts';
import { hostAndPort } from '../platform/http-client/connect.ts';
import type { Random } from '../platform/random.ts';
import type { Clock } from '../platform/time/clock.ts';

export interface Address {
  secure: boolean;
  /** An IP address, or a name that could not be resolved. */
  host: string;
  port: number;
  /** The name that the caller gave: used as the server's name in TLS, and in messages. */
  name: string;
  /** Other names for which its certificate may be valid instead of `name`. */
  otherNames?: readonly string[];
}

/** Where the caller says that instances are. */
export type Discovery = { urls: readonly string[] } | { dns: string | undefined; datacenter: string; domain: string };

/** An address, or the way to find one, is invalid. */
export class AddressError extends CnapiError {
  constructor(message: string, cause?: unknown) {
    super('InvalidArgument', 409, message, { cause });
  }
}

const RESOLVE_TIMEOUT_MS = 2000;
const MAX_ADDRESSES = 100;

/** The address as a URL without a path, for messages. */
export function addressText({ secure, host, port, name }: Address): string {
  const at = `${secure ? 'https' : 'http'}://${hostAndPort({ host: name, port })}`;
  return host === name ? at : `${at} (${host})`;
}

export const addressKey = ({ secure, host, port }: Address): string => `${secure ? 'https' : 'http'} ${host} ${port}`;

/** `http://HOST:PORT` or `https://HOST:PORT`. @throws AddressError */
export function parseAddress(text: string): Address {
  const url = URL.parse(text);
  const isPlain = url !== null && url.pathname + url.search + url.hash + url.username + url.password === '/';
  if (!isPlain || !['http:', 'https:'].includes(url.protocol))
    throw new AddressError(
      `${withoutSecret(text)} is not an address such as http://10.0.0.11:8080 or https://cnapi:8443${fixOf(text)}`,
    );
  const secure = url.protocol === 'https:';
  const name = url.hostname.replace(/^\[|\]$/g, '');
  return { secure, host: name, name, port: Number(url.port || (secure ? 443 : 80)) };
}

/**
 * Returns the names (not IP addresses) by which TLS recognizes instances: a certificate for one of
 * them belongs to this zone.
 * @throws AddressError
 */
export function tlsNamesOf(discovery: Discovery, secure: boolean): string[] {
  if (!('urls' in discovery)) return secure ? [serviceName(discovery)] : [];
  const given = discovery.urls.map(parseAddress).filter((address) => address.secure && isIP(address.name) === 0);
  return [...new Set(given.map(({ name }) => name))];
}

/** Returns the addresses to try, in order. @throws AddressError, NameResolutionError */
export async function resolveAddresses(
  discovery: Discovery,
  { clock, random, secure = false }: { clock: Clock; random: Random; secure?: boolean },
): Promise<Address[]> {
  if ('urls' in discovery) {
    const each = await Promise.all(discovery.urls.map((url) => expanded(parseAddress(url), clock)));
    return each.flat().slice(0, MAX_ADDRESSES);
  }
  const { dns: server, datacenter, domain } = discovery;
  const found = await resolveInstances({ server, datacenter, domain, timeoutMs: RESOLVE_TIMEOUT_MS, clock, random });
  const name = serviceName(discovery);
  return found.slice(0, MAX_ADDRESSES).map(({ host, port }) => ({ secure, host, port, name: secure ? name : host }));
}

/** Replaces a name by each of its addresses. A name that is not resolved in time is kept. */
async function expanded(address: Address, clock: Clock): Promise<Address[]> {
  if (isIP(address.host) !== 0) return [address];
  const hosts = await lookUpHost(address.host, { clock, withinMs: RESOLVE_TIMEOUT_MS });
  return hosts.length > 0 ? hosts.map((host) => ({ ...address, host })) : [address];
}

/** The scheme is not guessed: a token must not go without TLS where the caller meant TLS. */
const fixOf = (text: string): string =>
  /^(\[[\da-fA-F:.]+\]|[\w.-]+):\d{1,5}$/.test(text) ? `: write http://${text}, or with TLS https://${text}` : '';

/** The text may contain a password by mistake, which ends at the last `@`. */
function withoutSecret(text: string): string {
  const at = text.lastIndexOf('@');
  return at < 0 ? text.slice(0, 200) : `…${text.slice(at, at + 200)}`;
}
