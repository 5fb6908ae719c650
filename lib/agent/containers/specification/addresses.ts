/** IP addresses of a specification, in their canonical form. Pure. */
import { BlockList, isIPv4, isIPv6, SocketAddress } from 'node:net';
import { z } from 'zod';

type Family = 'ipv4' | 'ipv6';

interface Network {
  address: string;
  prefix: number;
  family: Family;
}

/** A wider network does not exist, so it is a typing error. */
const WIDEST = { ipv4: 8, ipv6: 16 } as const;
const LONGEST = { ipv4: 32, ipv6: 128 } as const;

/**
 * Addresses that no interface can have: unspecified, loopback, multicast, reserved, and IPv4 within
 * IPv6. One list for both families would match all of IPv4 as IPv4 within IPv6.
 */
const unusable = {
  ipv4: listOf('ipv4', { '0.0.0.0': 8, '127.0.0.0': 8, '224.0.0.0': 3 }),
  ipv6: listOf('ipv6', { '::': 127, '::ffff:0:0': 96, 'ff00::': 8 }),
};

function listOf(family: Family, networks: Readonly<Record<string, number>>): BlockList {
  const list = new BlockList();
  for (const [address, prefix] of Object.entries(networks)) list.addSubnet(address, prefix, family);
  return list;
}

export function familyOf(address: string): Family | undefined {
  if (isIPv4(address)) return 'ipv4';
  return isIPv6(address) && !address.includes('%') ? 'ipv6' : undefined;
}

/** The address of an interface with the length of its network, for example `10.0.0.5/24`. */
export const interfaceAddress = z.string().transform((text, context) => {
  const network = networkOf(text);
  const reason =
    network === undefined ? 'is not an address with a prefix; write for example 10.0.0.5/24' : flawOf(network);
  if (network !== undefined && reason === undefined) return `${network.address}/${network.prefix}`;
  context.addIssue(reason ?? '');
  return z.NEVER;
});

/** A machine that can be asked, for example a gateway. */
export const hostAddress = z.string().transform((text, context) => {
  const family = familyOf(text);
  if (family !== undefined && !unusable[family].check(text, family)) return canonical(text, family);
  context.addIssue('is not the IP address of a machine; write for example 10.0.0.1 or fd00::1');
  return z.NEVER;
});

/** A `hostAddress` or a loopback address, because a container may run its own name server. */
export const resolverAddress = z.string().transform((text, context) => {
  const family = familyOf(text);
  const isOwn = text === '::1' || (family === 'ipv4' && text.startsWith('127.'));
  if (family !== undefined && (isOwn || !unusable[family].check(text, family))) return canonical(text, family);
  context.addIssue('is not the IP address of a name server; write for example 10.0.0.1 or fd00::1');
  return z.NEVER;
});

/** Whether the network of this interface holds another machine's address. */
export function reaches(interfaceText: string, address: string): boolean {
  const network = networkOf(interfaceText);
  const family = familyOf(address);
  if (network === undefined || network.family !== family || network.address === address) return false;
  return listOf(family, { [network.address]: network.prefix }).check(address, family);
}

function networkOf(text: string): Network | undefined {
  const [, address = '', digits = ''] = /^([^/]+)\/(\d{1,3})$/.exec(text) ?? [];
  const family = familyOf(address);
  const prefix = Number(digits);
  if (family === undefined || prefix > LONGEST[family]) return undefined;
  return { address: canonical(address, family), prefix, family };
}

function flawOf({ address, prefix, family }: Network): string | undefined {
  if (unusable[family].check(address, family))
    return 'is loopback, multicast or reserved; choose an address for a machine';
  if (prefix < WIDEST[family])
    return `is in a network wider than /${WIDEST[family]}; write the prefix of its own network`;
  if (family === 'ipv6' || prefix > 30) return undefined;
  const hostBits = 2 ** (LONGEST.ipv4 - prefix);
  const host = numberOf(address) % hostBits;
  if (host === 0) return 'is the network itself; choose an address in it';
  return host === hostBits - 1 ? 'is the broadcast address of its network; choose another one' : undefined;
}

const numberOf = (address: string) => address.split('.').reduce((sum, part) => sum * 256 + Number(part), 0);

const canonical = (address: string, family: Family): string => new SocketAddress({ address, family }).address;
