/**
 * Finds addresses of instances for the first contact, as the command line specifies. Shared by the
 * agent and the fleet.
 */
import { isIP } from 'node:net';
import { lookUpHost } from '../../platform/dns/host-lookup.ts';
import { resolveInstances } from '../../platform/dns/resolve.ts';
import type { Random } from '../../platform/random.ts';
import type { Clock } from '../../platform/time/clock.ts';
import type { Endpoint } from './endpoints.ts';

/** Where instances are found: by DNS, or at fixed addresses. */
export type AgentDiscovery =
  | { dns: string | undefined; datacenter: string; domain: string }
  | { endpoints: Endpoint[] };

const RESOLVE_TIMEOUT_MS = 2000;

export function createResolver(
  discovery: AgentDiscovery,
  deps: { clock: Clock; random: Random },
): () => Promise<readonly Endpoint[]> {
  if ('endpoints' in discovery) return () => resolveHosts(discovery.endpoints, deps.clock);
  const { dns: server, datacenter, domain } = discovery;
  return () => resolveInstances({ server, datacenter, domain, timeoutMs: RESOLVE_TIMEOUT_MS, ...deps });
}

/** Replaces a host name by each of its addresses. A name that is not resolved in time is kept. */
async function resolveHosts(endpoints: readonly Endpoint[], clock: Clock): Promise<Endpoint[]> {
  const each = endpoints.map(async (endpoint) => {
    if (isIP(endpoint.host)) return [endpoint];
    const found = await lookUpHost(endpoint.host, { clock, withinMs: RESOLVE_TIMEOUT_MS });
    const hosts = found.length > 0 ? found : [endpoint.host];
    return hosts.map((host) => ({ ...endpoint, host, name: endpoint.host }));
  });
  return (await Promise.all(each)).flat();
}
