/** Addresses of instances for a first contact, as the command line says to find them. Shared by the agent and the fleet. */
import { resolveInstances } from '../dns/resolve.ts';
import type { Clock } from '../ports/clock.ts';
import type { Random } from '../ports/random.ts';
import type { Endpoint } from './endpoints.ts';
import type { Discovery } from './options.ts';

const RESOLVE_TIMEOUT_MS = 2000;

export function resolverOf(
  discovery: Discovery,
  deps: { clock: Clock; random: Random },
): () => Promise<readonly Endpoint[]> {
  if ('endpoints' in discovery) return async () => discovery.endpoints;
  const { dns: server, datacenter, domain } = discovery;
  return () => resolveInstances({ server, datacenter, domain, timeoutMs: RESOLVE_TIMEOUT_MS, ...deps });
}
