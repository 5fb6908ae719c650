/**
 * What a command works with: the client for the instances that the options name, the output, the
 * clock and randomness.
 */
import type { Discovery } from '../../client/address.ts';
import { CnapiClient } from '../../client/client.ts';
import { configFolder, readCredentials } from '../../client/credentials.ts';
import { runningLocals } from '../../client/local-cnapi.ts';
import { parseServer } from '../../platform/dns/resolve.ts';
import { type Random, systemRandom } from '../../platform/random.ts';
import { type Clock, systemClock } from '../../platform/time/clock.ts';
import { VERSION } from '../../platform/version.ts';
import { UsageError } from '../terminal/command-errors.ts';
import { Output } from '../terminal/output.ts';
import type { Streams } from '../terminal/streams.ts';
import { RememberedAddress } from './remembered-address.ts';

export interface GlobalOptions {
  url?: string[];
  dns?: string;
  dnsName?: string;
  tls?: boolean;
  json?: boolean;
  quiet?: boolean;
  color?: boolean;
}

export interface Context {
  /**
   * Made when a command first asks for it: commands that make no call must work without an address.
   * @throws UsageError
   */
  readonly client: CnapiClient;
  /** Closes the client, if there is one. */
  close(): void;
  output: Output;
  clock: Clock;
  random: Random;
  env: NodeJS.ProcessEnv;
  streams: Streams;
  /** The words after `--`; undefined when there was no `--`. */
  rest: readonly string[] | undefined;
}

const LOCAL_URL = 'http://127.0.0.1:8080';

export function createContext(
  options: GlobalOptions,
  { env, rest, streams }: Pick<Context, 'env' | 'rest' | 'streams'>,
): Context {
  const color = options.color !== false;
  const output = new Output({ json: options.json === true, quiet: options.quiet === true, env, color, streams });
  let client: CnapiClient | undefined;
  return {
    get client() {
      client ??= clientFor(options, { env, output });
      return client;
    },
    close: () => client?.close(),
    output,
    clock: systemClock,
    random: systemRandom,
    env,
    streams,
    rest,
  };
}

/** @throws UsageError */
function clientFor(options: GlobalOptions, { env, output }: Pick<Context, 'env' | 'output'>): CnapiClient {
  const discovery = parseDiscovery(options, env);
  const secure = options.tls === true || env.CNAPI_TLS === '1';
  if (secure && 'urls' in discovery && discovery.urls.some((url) => !url.startsWith('https:')))
    throw new UsageError('--tls and CNAPI_TLS=1 need addresses with TLS: write https://HOST:PORT');
  return new CnapiClient({
    discovery,
    secure,
    // Read at the first call: commands that make no call must work without valid credentials, to
    // repair them.
    credentials: () => readCredentials(env),
    clock: systemClock,
    random: systemRandom,
    agent: `cnapi-cli/${VERSION}`,
    onSlow: (text) => output.note(text),
    remembered: new RememberedAddress(discovery, { env, clock: systemClock }),
  });
}

/** Options take precedence over the environment, addresses over names. @throws UsageError */
export function parseDiscovery(options: GlobalOptions, env: NodeJS.ProcessEnv): Discovery {
  const { url = [], dns, dnsName } = options;
  if (url.length > 0 && (dns ?? dnsName) !== undefined)
    throw new UsageError('--url cannot be combined with --dns or --dns-name');
  if (url.length > 0) return { urls: listed(url) };
  if ((dns ?? dnsName) !== undefined) return named(dns ?? env.CNAPI_DNS, dnsName ?? env.CNAPI_DNS_NAME);
  if (env.CNAPI_URL) return { urls: listed([env.CNAPI_URL]) };
  if (env.CNAPI_DNS || env.CNAPI_DNS_NAME) return named(env.CNAPI_DNS, env.CNAPI_DNS_NAME);
  return { urls: localUrls(env) };
}

/**
 * URLs of this user's `npm start` on this machine, whatever its ports. Chooses none of several: a
 * command must not reach a fleet that the user did not mean.
 */
function localUrls(env: NodeJS.ProcessEnv): string[] {
  const all = runningLocals(configFolder(env)).filter(({ urls }) => urls.length > 0);
  const [only, ...others] = all;
  if (only === undefined) return [LOCAL_URL];
  if (others.length === 0) return [...only.urls];
  const each = all.map(({ urls: [url], data }) => (data === undefined ? url : `${url} (its data: ${data})`));
  throw new UsageError(
    `Several cnapis run on this machine; say which one with --url URL or CNAPI_URL: ${each.join(' or ')}`,
  );
}

const listed = (urls: readonly string[]): string[] =>
  urls.flatMap((url) => url.split(',').map((one) => one.trim())).filter((one) => one !== '');

function named(dns: string | undefined, dnsName = 'cnapi.local.cnapi.internal'): Discovery {
  const [, datacenter, domain] = /^cnapi\.([^.]+)\.(.+?)\.?$/.exec(dnsName) ?? [];
  if (datacenter === undefined || domain === undefined)
    throw new UsageError(`--dns-name ${dnsName} is not cnapi.DATACENTER.DOMAIN`);
  if (dns !== undefined) checkServer(dns);
  return { dns, datacenter, domain };
}

function checkServer(dns: string): void {
  try {
    parseServer(dns);
  } catch (cause) {
    throw new UsageError(`--dns ${dns} is not the address of a name server such as 10.0.0.2:53`, { cause });
  }
}
