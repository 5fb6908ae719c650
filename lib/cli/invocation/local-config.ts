/** The configuration of an `npm start` of this user that runs on this machine. */
import path from 'node:path';
import { addressKey, parseAddress } from '../../client/address.ts';
import { configFolder } from '../../client/credentials.ts';
import { runningLocals } from '../../client/local-cnapi.ts';
import { type GlobalOptions, parseDiscovery } from './context.ts';

/**
 * The configuration file of one of its instances; undefined if this call's address belongs to no
 * running `npm start`.
 * @throws UsageError if several run and nothing says which one is meant; AddressError
 */
export function localConfigFile(options: GlobalOptions, env: NodeJS.ProcessEnv): string | undefined {
  const discovery = parseDiscovery(options, env);
  if (!('urls' in discovery)) return undefined;
  const asked = new Set(discovery.urls.map(addressOf));
  const local = runningLocals(configFolder(env)).find(({ urls }) => urls.some((url) => asked.has(addressOf(url))));
  const [url] = local?.urls ?? [];
  if (url === undefined || local?.data === undefined) return undefined;
  return path.join(local.data, 'config', `instance-${new URL(url).port}.json`);
}

/**
 * Normalizes an address for comparison: `npm start` listens at 127.0.0.1, which is also localhost.
 */
function addressOf(url: string): string {
  const address = parseAddress(url);
  return addressKey(address.host === 'localhost' ? { ...address, host: '127.0.0.1' } : address);
}
