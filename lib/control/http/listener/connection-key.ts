import type { Socket } from 'node:net';

/**
 * Identifies an open connection by its two ends, the same before and after TLS. Our end matters if
 * the instance has more than one address.
 */
export function connectionKey({ remoteAddress, remotePort, localAddress }: Socket): string {
  return `${remoteAddress} ${remotePort} ${localAddress}`;
}
