/**
 * Where instances listen, and which of them asked the agent to retry later. Pure; used by
 * link-step.ts.
 */

import { MAX_RETURN_MS } from '../../protocol/limits.ts';
import type { InstanceAddress } from '../../protocol/link/frames.ts';

/**
 * Where an instance listens, its uuid if known, and the host name if the address came from a
 * lookup.
 */
export type Endpoint = Pick<InstanceAddress, 'host' | 'port'> & {
  uuid?: string | undefined;
  name?: string | undefined;
};

/** Maps the key of an endpoint to the time until which it must not be tried. */
export type Holds = Readonly<Record<string, number>>;

export const endpointKey = (endpoint: Endpoint): string => `${endpoint.host}:${endpoint.port}`;

/** True also when the instance is known by another address. */
export function isSameInstance(endpoint: Endpoint, other: { endpoint: Endpoint; cnapiUuid: string }): boolean {
  return endpoint.uuid === other.cnapiUuid || endpointKey(endpoint) === endpointKey(other.endpoint);
}

/** The holds that have not expired, and one more, which lasts at most MAX_RETURN_MS. */
export function withHold(holds: Holds, hold: { endpoint: Endpoint; ms: number }, now: number): Holds {
  const unexpired = Object.entries(holds).filter(([, until]) => until > now);
  return { ...Object.fromEntries(unexpired), [endpointKey(hold.endpoint)]: now + Math.min(hold.ms, MAX_RETURN_MS) };
}

export function isHeld(holds: Holds, endpoint: Endpoint, now: number): boolean {
  return (holds[endpointKey(endpoint)] ?? 0) > now;
}

/** How long until any of the endpoints may be tried. */
export function heldForMs(holds: Holds, endpoints: readonly Endpoint[], now: number): number {
  const each = endpoints.map((endpoint) => (holds[endpointKey(endpoint)] ?? 0) - now);
  return each.length > 0 ? Math.max(0, Math.min(...each)) : 0;
}
