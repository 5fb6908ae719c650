/**
 * The addresses to which an allowed URL may lead. Who controls a name, or its DNS zone, could point
 * it to services of this machine, or to the metadata service of a cloud (169.254.169.254). Private
 * addresses are possible: the image servers of most operators have one.
 */
import { isIP } from 'node:net';
import { type HttpTarget, targetOf } from '../../platform/http-client/connect.ts';
import { isLoopback, Networks, normalizeAddress } from '../../platform/network/networks.ts';
import type { AllowedSources } from './allowed-sources.ts';
import { ImageSourceNotAllowedError } from './image-errors.ts';

/** Returns an empty list when the name is unknown. */
export type LookUp = (name: string) => Promise<string[]>;

const REFUSED_IPV4 = [
  // "This network", loopback and link-local; Networks counts `::ffff:127.0.0.1` as IPv4.
  ...['0.0.0.0/8', '127.0.0.0/8', '169.254.0.0/16'],
  // Multicast, reserved addresses and broadcast.
  ...['224.0.0.0/4', '240.0.0.0/4'],
  // The metadata services of Azure, Alibaba and (formerly) Oracle.
  ...['168.63.129.16/32', '100.100.100.200/32', '192.0.0.192/32'],
];

const refused = new Networks([
  ...REFUSED_IPV4,
  ...REFUSED_IPV4.flatMap(formsWithinIPv6),
  ...['::1', 'fe80::/10'],
  // Multicast.
  ...['ff00::/8'],
  // The metadata services of Amazon, Google and Oracle by IPv6.
  ...['fd00:ec2::/32', 'fd20:ce::254', 'fd00:c1::a9fe:a9fe'],
  // IPv4 within IPv6 at a place that the network decides, or in disguise: no image server needs
  // them. Translated (RFC 2765), local NAT64 (RFC 8215), Teredo (RFC 4380).
  ...['::ffff:0:0:0/96', '64:ff9b:1::/48', '2001::/32'],
]);

/**
 * IPv6 addresses that contain an IPv4 address: compatible (RFC 4291), NAT64 (RFC 6052), 6to4 (RFC
 * 3056).
 */
function formsWithinIPv6(network: string): string[] {
  const [address = '', prefix] = network.split('/');
  const bytes = address.split('.').map((byte) => Number(byte).toString(16).padStart(2, '0'));
  const groups = `${bytes.slice(0, 2).join('')}:${bytes.slice(2).join('')}`;
  const within = (bits: number) => bits + Number(prefix);
  return [`::${groups}/${within(96)}`, `64:ff9b::${groups}/${within(96)}`, `2002:${groups}::/${within(16)}`];
}

/**
 * Where to connect for a URL that is allowed, in the order of the answer. They are addresses, so
 * that a second answer of the name server cannot lead elsewhere. Empty when the name is unknown.
 * @throws ImageSourceNotAllowedError
 */
export async function allowedTargets(url: URL, { urls }: AllowedSources, lookUp: LookUp): Promise<HttpTarget[]> {
  const target = targetOf(url);
  // Its origin is in the configuration, so the operator has named this address.
  if (isIP(target.host) !== 0 || isLoopback(target.host)) return [target];
  const named = urls.map((url) => targetOf(url)).filter(({ port }) => port === target.port);
  const addresses = await lookUp(target.host);
  const allowed = addresses.filter(
    (address) => !refused.contain(normalizeAddress(address)) || named.some(({ host }) => host === address),
  );
  const [address] = addresses;
  if (allowed.length === 0 && address !== undefined)
    throw new ImageSourceNotAllowedError(
      `url: ${target.host} has the address ${address}, which belongs to this machine or its link; if that is meant, add --image-url with the address and port ${target.port}`,
    );
  return allowed.map((host) => ({ ...target, host, name: target.host }));
}
