/** Where the agent of a task finds its stream. Pure. */
import type { InstanceAddress } from '../../protocol/link/frames.ts';
import type { StreamPlace } from '../../protocol/streams/stream.ts';

/**
 * The agent is sent to the instance that the name begins with, whatever a caller says. Undefined if
 * that is not among `addresses`.
 */
export function placeOf(name: string, addresses: readonly InstanceAddress[]): StreamPlace | undefined {
  const [instance] = name.split('.');
  const address = addresses.find(({ uuid }) => uuid === instance);
  return address && { name, host: address.host, port: address.port };
}
