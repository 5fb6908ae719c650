/**
 * Callers that are trusted because of their address. Pure. Takes addresses as sockets report them;
 * IPv4 within IPv6 counts as IPv4.
 */
import { BlockList, isIP, isIPv6 } from 'node:net';
import type { Role } from '../../protocol/api/roles.ts';
import type { Actor } from './token.ts';

type NetworkRole = Exclude<Role, 'admin'>;

export interface TrustedNetwork {
  /** As it was configured. */
  text: string;
  roles: readonly NetworkRole[];
}

/** Wider networks belong to nobody, so they are typing errors. */
const WIDEST = { ipv4: 8, ipv6: 16 } as const;

/** Why `text` names no network that can be trusted; undefined if it names one. */
export function reasonNotANetwork(text: string): string | undefined {
  const [address = '', prefix, ...rest] = text.split('/');
  const kind = kindOf(address);
  if (kind === undefined || rest.length > 0 || (prefix !== undefined && !/^\d{1,3}$/.test(prefix)))
    return 'is not a network such as 10.0.0.0/24 or fd00::/64';
  const bits = prefix === undefined ? longest(kind) : Number(prefix);
  if (bits > longest(kind)) return `has a prefix longer than /${longest(kind)}`;
  if (kind === 'ipv6' && holdsIPv4(text)) return 'holds IPv4 addresses; name them as IPv4';
  if (bits < WIDEST[kind]) return `is wider than /${WIDEST[kind]}; name the networks that are meant`;
  return undefined;
}

const loopback = new BlockList();
loopback.addSubnet('127.0.0.0', 8);
loopback.addAddress('::1', 'ipv6');

/**
 * True for an address or name by which only this machine can reach itself. IPv6 without brackets.
 */
export function isLoopback(host: string): boolean {
  const kind = kindOf(host);
  return kind === undefined ? host.toLowerCase() === 'localhost' : loopback.check(host, kind);
}

export class TrustedNetworks {
  readonly #networks: { list: BlockList; text: string; roles: readonly NetworkRole[] }[];

  /** Each of them has passed `reasonNotANetwork`. */
  constructor(networks: readonly TrustedNetwork[]) {
    this.#networks = networks.map(({ text, roles }) => ({ list: listOf(text), text, roles }));
  }

  /**
   * The actor for a caller at `address` without a token; undefined outside the trusted networks. An
   * address in several networks has the roles of all.
   */
  actorAt(address: string): Actor | undefined {
    const kind = kindOf(address);
    if (kind === undefined) return undefined;
    const around = this.#networks.filter(({ list }) => list.check(address, kind));
    if (around.length === 0) return undefined;
    const roles = [...new Set(around.flatMap((one) => one.roles))];
    return { name: `network ${around.map(({ text }) => text).join(' and ')}`, roles };
  }
}

/**
 * A peer's address without what the system adds: `::ffff:10.0.0.1` is 10.0.0.1, a zone (`%eth0`) is
 * left out.
 */
export function plainAddress(address: string): string {
  const [bare = ''] = address.split('%', 1);
  return bare.toLowerCase().startsWith('::ffff:') && bare.includes('.') ? bare.slice('::ffff:'.length) : bare;
}

/**
 * What counts as one source: an IPv4 address, or an IPv6 /64, because a single machine may have a
 * whole /64.
 */
export function sourceOf(address: string): string {
  if (!isIPv6(address)) return address;
  const [head = '', tail] = address.split('::', 2);
  const groups = head === '' ? [] : head.split(':');
  const last = tail === undefined || tail === '' ? [] : tail.split(':');
  const zeros = tail === undefined ? 0 : Math.max(0, 8 - groups.length - last.length);
  const all = [...groups, ...new Array<string>(zeros).fill('0'), ...last];
  return `${all
    .slice(0, 4)
    .map((group) => Number.parseInt(group, 16).toString(16))
    .join(':')}::/64`;
}

function listOf(text: string): BlockList {
  const [address = '', prefix] = text.split('/');
  const kind = kindOf(address) ?? 'ipv4';
  const list = new BlockList();
  list.addSubnet(address, prefix === undefined ? longest(kind) : Number(prefix), kind);
  return list;
}

/** IPv4 within IPv6 counts as IPv4, so a network that holds it would cover more than it names. */
function holdsIPv4(text: string): boolean {
  const [address = ''] = text.split('/');
  return mapped.check(address, 'ipv6') || listOf(text).check('::ffff:8.8.8.8', 'ipv6');
}

const mapped = new BlockList();
mapped.addSubnet('::ffff:0:0', 96, 'ipv6');

function kindOf(address: string): 'ipv4' | 'ipv6' | undefined {
  const version = isIP(address);
  return version === 0 ? undefined : version === 4 ? 'ipv4' : 'ipv6';
}

function longest(kind: 'ipv4' | 'ipv6'): number {
  return kind === 'ipv4' ? 32 : 128;
}
