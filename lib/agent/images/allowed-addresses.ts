/**
 * The addresses to which an allowed URL may lead. Who controls a name, or its DNS zone, could point it
 * to services of this machine, or to the metadata service of a cloud (169.254.169.254). Private
 * addresses are possible: the image servers of most operators have one.
 */
import { isIP } from 'node:net';
import { type HttpTarget, targetOf } from '../../platform/http-client/connect.ts';
import { isLoopback, Networks } from '../../platform/networks.ts';
import type { AllowedSources } from './allowed-sources.ts';
import { ImageSourceNotAllowedError } from './image-errors.ts';

/** Returns an empty list when the name is unknown. */
export type LookUp = (name: string) => Promise<string[]>;

/** "This network", loopback and link-local. */
const refused = new Networks(['0.0.0.0/8', '127.0.0.0/8', '169.254.0.0/16', '::', '::1', 'fe80::/10']);

/**
 * Where to connect for a URL that is allowed, in the order of the answer. They are addresses, so that
 * a second answer of the name server cannot lead elsewhere. Empty when the name is unknown.
 * @throws ImageSourceNotAllowedError
 */
export async function allowedTargets(url: URL, { urls }: AllowedSources, lookUp: LookUp): Promise<HttpTarget[]> {
  const target = targetOf(url);
  // Its origin is in the configuration, so the operator has named this address.
  if (isIP(target.host) !== 0 || isLoopback(target.host)) return [target];
  const named = urls.map((one) => targetOf(one).host);
  const found = await lookUp(target.host);
  const allowed = found.filter((address) => !refused.contain(address) || named.includes(address));
  const [address] = found;
  if (allowed.length === 0 && address !== undefined)
    throw new ImageSourceNotAllowedError(
      `url: ${target.host} has the address ${address}, which belongs to this machine or its link; if that is meant, add --image-url with the address`,
    );
  return allowed.map((host) => ({ ...target, host, name: target.host }));
}
