/**
 * Finds where a server's agent listens, from its sysinfo. Pure. All requests use one order: `CN
 * Agent IP`, then `Admin IP`, then the address of the NIC that carries the admin network; the
 * reference has two orders.
 *
 * Anybody who may post a sysinfo decides with it where an instance sends tasks. So names are never
 * resolved: only IP literals count, and only where an agent may be: an address from which this very
 * server's agent posted, or one in a configured network. Some are refused even there: addresses
 * where clouds keep credentials, and IPv6 that stands for IPv4 by a well-known prefix (an instance
 * cannot know the prefix of a site's own NAT64). Loopback counts only while no token is required on
 * this machine, or if it was configured. Ports below 1024 belong to other services, never to an
 * agent.
 */
import { isIP } from 'node:net';
import { CnapiError } from '../../platform/errors.ts';
import { isLoopback, Networks } from '../../platform/network/networks.ts';

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

/** The addresses where agents may be. */
export interface AllowedAddresses {
  /** Addresses from which this server's agent connected. */
  sources: readonly string[];
  /** Networks of all agents, such as 10.0.0.0/24; each has passed `reasonNotANetwork`. */
  networks: readonly string[];
  allowLoopback: boolean;
}

/** The server's sysinfo names no address where its agent can be reached. */
export class NoAgentAddressError extends CnapiError {
  /** No instance has recorded its agent's address yet: the next heartbeat may supply it. */
  readonly mayPass: boolean;

  constructor(serverUuid: string, reason: string, { mayPass = false } = {}) {
    super('NoAgentAddress', 500, `The agent of server ${serverUuid} cannot be reached: ${reason}`);
    this.mayPass = mayPass;
  }
}

const NOT_ALLOWED = "is neither an address from which its agent was heard nor in the configuration's agentNetworks";
const DEFAULT_PORT = 5309;
const LEAST_PORT = 1024;

/** @throws NoAgentAddressError */
export function agentAddress(serverUuid: string, sysinfo: AddressParts, allowed: AllowedAddresses): AgentAddress {
  const host = [sysinfo['CN Agent IP'], sysinfo['Admin IP'], adminNicAddress(sysinfo)].find(isAddress);
  if (host === undefined) throw new NoAgentAddressError(serverUuid, 'its sysinfo has no admin IP');
  const refused = refusalOf(host, allowed);
  if (refused !== undefined) throw new NoAgentAddressError(serverUuid, `${host} is ${refused}`);
  if (!new Networks([...allowed.sources, ...allowed.networks]).contain(host))
    throw new NoAgentAddressError(serverUuid, `${host} ${NOT_ALLOWED}`, { mayPass: allowed.sources.length === 0 });
  return { host, port: portOf(sysinfo['CN Agent Port']) };
}

/** Without a zone (`%eth0`), which has a meaning on one machine only. */
const isAddress = (value: unknown): value is string =>
  typeof value === 'string' && isIP(value) !== 0 && !value.includes('%');

function portOf(value: unknown): number {
  const port = typeof value === 'string' && /^\d{1,5}$/.test(value) ? Number(value) : value;
  const isPort = typeof port === 'number' && Number.isInteger(port) && port >= LEAST_PORT && port < 65_536;
  return isPort ? port : DEFAULT_PORT;
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

const noServers = new Networks([
  '0.0.0.0/8',
  '224.0.0.0/3',
  '::/96',
  'ff00::/8',
  // Link-local addresses, and those where clouds serve credentials (AWS, Google, Alibaba,
  // Azure, Oracle).
  '169.254.0.0/16',
  'fe80::/10',
  'fd00:ec2::254/128',
  'fd20:ce::254/128',
  '100.100.100.200/32',
  '168.63.129.16/32',
  '192.0.0.192/32',
  // Translated into IPv4 by the network.
  '::ffff:0:0:0/96',
  '64:ff9b::/96',
  '64:ff9b:1::/48',
  '2002::/16',
  // Teredo: tunnelled to an IPv4 address that is part of it.
  '2001::/32',
]);

/** A mapped IPv4 address counts as the address it maps. */
function refusalOf(host: string, { allowLoopback, networks }: AllowedAddresses): string | undefined {
  if (isLoopback(host)) return allowLoopback || new Networks(networks).contain(host) ? undefined : 'a loopback address';
  return noServers.contain(host) ? 'not an address of a server' : undefined;
}
