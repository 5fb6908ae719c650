/**
 * Where the agent of a server listens, as its sysinfo tells. Pure. The order is one for all requests: `CN Agent IP`, then
 * `Admin IP`, then the address of the NIC that carries the admin network; the reference has two orders.
 *
 * Anybody who may post a sysinfo says with it where an instance sends tasks. So no name is ever resolved, only IP literals
 * count, and none that cannot be a server's: link-local (where clouds keep credentials), multicast, broadcast, or no
 * address. Loopback only for an instance that is itself reached there.
 */
import { BlockList, isIP } from 'node:net';
import { isLoopback } from '../access/networks.ts';
import { CnapiError } from '../errors.ts';

export interface AgentAddress {
  /** An IP literal. */
  host: string;
  port: number;
}

/** The parts of a sysinfo that `agentAddress` looks at. */
export const ADDRESS_KEYS = [
  'CN Agent IP',
  'CN Agent Port',
  'Admin IP',
  'Admin NIC Tag',
  'Network Interfaces',
] as const;

export type AddressParts = Partial<Record<(typeof ADDRESS_KEYS)[number], unknown>>;

/** The server's sysinfo names no place where its agent can be reached. */
export class NoAgentAddressError extends CnapiError {
  constructor(serverUuid: string, reason: string) {
    super('NoAgentAddress', 500, `The agent of server ${serverUuid} cannot be reached: ${reason}`);
  }
}

const DEFAULT_PORT = 5309;

/** @throws NoAgentAddressError */
export function agentAddress(
  serverUuid: string,
  sysinfo: AddressParts,
  { allowLoopback }: { allowLoopback: boolean },
): AgentAddress {
  const host = [sysinfo['CN Agent IP'], sysinfo['Admin IP'], adminNicAddress(sysinfo)].find(isAddress);
  if (host === undefined) throw new NoAgentAddressError(serverUuid, 'its sysinfo has no admin IP');
  const refused = refusalOf(host, allowLoopback);
  if (refused !== undefined) throw new NoAgentAddressError(serverUuid, `${host} is ${refused}`);
  return { host, port: portOf(sysinfo['CN Agent Port']) };
}

const isAddress = (value: unknown): value is string => typeof value === 'string' && isIP(value) !== 0;

function portOf(value: unknown): number {
  const port = typeof value === 'string' ? Number(value) : value;
  return typeof port === 'number' && Number.isInteger(port) && port > 0 && port < 65_536 ? port : DEFAULT_PORT;
}

function adminNicAddress(sysinfo: AddressParts): unknown {
  const nics = sysinfo['Network Interfaces'];
  if (typeof nics !== 'object' || nics === null) return undefined;
  const tag = sysinfo['Admin NIC Tag'] ?? 'admin';
  for (const nic of Object.values(nics)) {
    const names: unknown = nic?.['NIC Names'];
    if (Array.isArray(names) && (names.includes('admin') || names.includes(tag))) return nic.ip4addr;
  }
  return undefined;
}

const noServers = new BlockList();
noServers.addSubnet('0.0.0.0', 8);
noServers.addSubnet('169.254.0.0', 16);
noServers.addSubnet('224.0.0.0', 3);
noServers.addAddress('::', 'ipv6');
noServers.addSubnet('fe80::', 10, 'ipv6');
noServers.addSubnet('ff00::', 8, 'ipv6');

/** Mapped IPv4 addresses count as what they map. */
function refusalOf(host: string, allowLoopback: boolean): string | undefined {
  const family = isIP(host) === 6 ? 'ipv6' : 'ipv4';
  if (noServers.check(host, family)) return 'no address of a server';
  if (!allowLoopback && isLoopback(host)) return 'a loopback address';
  return undefined;
}
