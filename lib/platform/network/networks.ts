/**
 * Networks as configurations name them, and addresses as sockets report them. Pure. IPv4 within
 * IPv6 counts as IPv4.
 */
import { BlockList, isIP, isIPv6 } from 'node:net';

/** No owner has a wider network, so a wider one is a typing error. */
const WIDEST = { ipv4: 8, ipv6: 16 } as const;
const LONGEST = { ipv4: 32, ipv6: 128 } as const;

/** Why `text` names no network that can be trusted; undefined if it names one. */
export function reasonNotANetwork(text: string): string | undefined {
  const [address = '', prefix, ...rest] = text.split('/');
  const kind = kindOf(address);
  if (kind === undefined || rest.length > 0 || (prefix !== undefined && !/^\d{1,3}$/.test(prefix)))
    return 'is neither an IP address nor a network such as 10.0.0.0/24 or fd00::/64';
  const bits = prefix === undefined ? LONGEST[kind] : Number(prefix);
  if (bits > LONGEST[kind]) return `has a prefix longer than /${LONGEST[kind]}`;
  if (kind === 'ipv6' && holdsIPv4(text)) return 'holds IPv4 addresses; name them as IPv4';
  if (bits < WIDEST[kind]) return `is wider than /${WIDEST[kind]}; name the networks that are meant`;
  return undefined;
}

export class Networks {
  readonly #list = new BlockList();

  /** Addresses, or networks such as 10.0.0.0/24. Other texts are left out. */
  constructor(texts: readonly string[]) {
    for (const text of texts) {
      const [address = '', prefix] = text.split('/');
      const kind = kindOf(address);
      if (kind === undefined) continue;
      this.#list.addSubnet(address, prefix === undefined ? LONGEST[kind] : Number(prefix), kind);
    }
  }

  /** False if the text is not an IP address. */
  contain(address: string): boolean {
    const kind = kindOf(address);
    return kind !== undefined && this.#list.check(address, kind);
  }
}

const loopback = new Networks(['127.0.0.0/8', '::1']);

/**
 * True for an address or name by which only this machine can reach itself. IPv6 without brackets.
 */
export function isLoopback(host: string): boolean {
  return host.toLowerCase() === 'localhost' || loopback.contain(host);
}

const MAPPED = '::ffff:';

/**
 * A peer's address without what the system adds: `::ffff:10.0.0.1` is 10.0.0.1, a zone (`%eth0`) is
 * left out.
 */
export function normalizeAddress(address: string): string {
  const [bare = ''] = address.split('%', 1);
  const rest = bare.slice(MAPPED.length);
  return bare.toLowerCase().startsWith(MAPPED) && isIP(rest) === 4 ? rest : bare;
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

const mapped = new Networks(['::ffff:0:0/96']);

/** A network that holds mapped IPv4 addresses would cover more than it names. */
function holdsIPv4(text: string): boolean {
  const [address = ''] = text.split('/');
  return mapped.contain(address) || new Networks([text]).contain('::ffff:8.8.8.8');
}

function kindOf(address: string): 'ipv4' | 'ipv6' | undefined {
  const version = isIP(address);
  return version === 0 ? undefined : version === 4 ? 'ipv4' : 'ipv6';
}
