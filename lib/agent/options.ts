/** Parses the agent's command line. A wrong option throws an AgentUsageError that names it. */

import { isIP } from 'node:net';
import { isAbsolute, normalize, resolve } from 'node:path';
import { type ParseArgsOptionsConfig, parseArgs } from 'node:util';
import { parseServer } from '../platform/dns/resolve.ts';
import { messageOf } from '../platform/errors.ts';
import { LOG_LEVELS, type LogLevel } from '../platform/log.ts';
import { reasonNotANetwork } from '../platform/network/networks.ts';
import { UUID } from '../platform/uuid.ts';
import type { AllowedWork } from '../protocol/allowed-work.ts';
import { reasonNotDataset } from '../protocol/zfs.ts';
import { readOptionsFile } from './config-file.ts';
import type { ContainerOptions } from './containers/open-containers.ts';
import type { ImageOptions } from './images/images.ts';
import { DEFAULT_TRIAL_SECONDS } from './launcher/launcher-options.ts';
import type { CredentialOptions } from './link/credentials.ts';
import type { AgentDiscovery } from './link/discovery.ts';
import type { Endpoint } from './link/endpoints.ts';
import { PROTOCOLS, type Protocol } from './link/fallback.ts';
import { agentOptions, type discoveryOptions } from './option-table.ts';
import type { PackageOptions } from './packages/packages.ts';
import type { SetupRules } from './settings/settings.ts';
import { AgentUsageError } from './usage-error.ts';

/** How the agent and instances authenticate each other: `tls`, `caFile`, `tlsName`, `tokenFile`. */
export type CredentialValues = Omit<CredentialOptions, 'usualTokenFile'>;

export interface AgentOptions {
  discovery: AgentDiscovery;
  credentials: CredentialValues;
  data: string;
  uuid: string | undefined;
  allowReboot: boolean;
  /** A server without a record of its set-up is not set up. */
  needsSetup: boolean;
  setupRules: SetupRules;
  /** Recovery configurations are kept. */
  encryptedZpool: boolean;
  /** File with the commands of push jobs that it runs. */
  pushCommands: string | undefined;
  /** Reported beside the kernel's boot parameters, and override them. */
  bootParameters: Record<string, string>;
  protocol: Protocol;
  /** Where tasks may be posted, and by whom; port 0 takes a free one. */
  http: HttpOptions | undefined;
  /** Datasets that may be changed, with all below them. */
  zfs: readonly string[];
  /** Undefined if it runs no containers. */
  containers: (ContainerOptions & { images: ImageOptions }) | undefined;
  /** Undefined if it installs no packages. */
  packages: (Omit<PackageOptions, 'keys'> & { keyFiles: string[] }) | undefined;
  /** How long a new version of this agent may take to come up. */
  trialMs: number;
  logLevel: LogLevel;
}

interface HttpOptions {
  host: string;
  port: number;
  /** Everybody may post tasks. */
  open: boolean;
  /** Callers from these networks need no token. */
  from: string[];
}

/** A name that the kernel accepts for a network interface (IFNAMSIZ). */
const BRIDGE = /^[\w][\w.-]{0,14}$/;
const DEFAULT_IMAGE_BYTES = String(10 * 1024 ** 3);
const MIN_UIDS = 65_536;
/** The next one means "none" to the kernel. */
const MAX_UID = 4_294_967_294;

/** What parseArgs returns for these options. */
type ValuesOf<Options extends ParseArgsOptionsConfig> = ReturnType<typeof parseArgs<{ options: Options }>>['values'];

/** Undefined when only help is requested. */
export function parseAgentOptions(args: string[], env: NodeJS.ProcessEnv = {}): AgentOptions | undefined {
  const values = parsed(args);
  if (values.help) return undefined;
  if (values.data === undefined || values.data === '') throw new AgentUsageError('--data DIR is missing');
  if (values.uuid !== undefined && !UUID.test(values.uuid)) {
    throw new AgentUsageError(`--uuid ${values.uuid} is not a lower-case UUID`);
  }
  return {
    discovery: parseAgentDiscovery(values),
    credentials: checkCredentialValues(values, env),
    data: values.data,
    uuid: values.uuid,
    allowReboot: values['allow-reboot'] ?? false,
    needsSetup: values['needs-setup'] ?? false,
    setupRules: {
      allowsSetup: values['allow-setup'] ?? false,
      resetProgram: resetProgramOf(values['factory-reset']),
    },
    encryptedZpool: values['encrypted-zpool'] ?? false,
    pushCommands: values['push-commands'],
    bootParameters: bootParametersOf(values['boot-parameter'], values.headnode),
    protocol: oneOf('--protocol', PROTOCOLS, values.protocol ?? 'auto'),
    http: httpOf(values, env),
    zfs: zfsOf(values.zfs),
    containers: containersOf(values, values.data),
    packages: packagesOf(values),
    trialMs: trialMsOf(values['package-trial']),
    logLevel: logLevelOf(values['log-level']),
  };
}

/** What the agent does to its machine; the rest is refused. */
export const allowedWork = ({ allowReboot, setupRules }: AgentOptions): AllowedWork[] => [
  ...(allowReboot ? (['reboot'] as const) : []),
  ...(setupRules.allowsSetup ? (['setup'] as const) : []),
  ...(setupRules.resetProgram === undefined ? [] : (['factory-reset'] as const)),
];

function parsed(args: string[]): ValuesOf<typeof agentOptions> {
  return asUsageError(() => {
    const { values } = parseArgs({ args, options: agentOptions });
    return values.config === undefined ? values : { ...readOptionsFile(values.config, agentOptions), ...values };
  });
}

/** Turns an error about an option, or about the file that it names, into a usage error. */
export function asUsageError<Result>(use: () => Result): Result {
  try {
    return use();
  } catch (error) {
    throw new AgentUsageError(messageOf(error), error);
  }
}

export function parseAgentDiscovery(values: ValuesOf<typeof discoveryOptions>): AgentDiscovery {
  const { dns, url = [], datacenter, domain } = values;
  const byName = dns ?? datacenter ?? domain;
  if (url.length > 0 && byName !== undefined)
    throw new AgentUsageError('--url cannot be combined with --dns, --datacenter or --domain');
  if (url.length > 0) return { endpoints: url.map(endpointOf) };
  if (byName === undefined)
    throw new AgentUsageError('The address of an instance is missing: give --dns ADDRESS:PORT or --url URL');
  if (dns !== undefined) checkDnsServer(dns);
  return { dns, datacenter: datacenter ?? 'local', domain: domain ?? 'cnapi.internal' };
}

function checkDnsServer(dns: string): void {
  try {
    parseServer(dns);
  } catch (error) {
    throw new AgentUsageError(`--dns ${dns} cannot be used. ${messageOf(error)}`, error);
  }
}

const SCHEMES: Readonly<Record<string, { tls: boolean; port: number }>> = {
  'http:': { tls: false, port: 80 },
  'ws:': { tls: false, port: 80 },
  'https:': { tls: true, port: 443 },
  'wss:': { tls: true, port: 443 },
};

function endpointOf(text: string): Endpoint {
  const url = URL.parse(text);
  const isPlain = url && url.pathname + url.search + url.hash + url.username === '/';
  const scheme = SCHEMES[url?.protocol ?? ''];
  if (!isPlain || !scheme) throw new AgentUsageError(`--url ${text} is not http://HOST:PORT or https://HOST:PORT`);
  return { host: url.hostname.replace(/^\[|\]$/g, ''), port: Number(url.port || scheme.port) };
}

/** An agent moves from instance to instance, so all its URLs must have the same scheme. */
export function checkCredentialValues(
  values: ValuesOf<typeof discoveryOptions>,
  env: NodeJS.ProcessEnv,
): CredentialValues {
  const { url = [], ca, 'tls-name': tlsName, 'token-file': tokenFile = env.CN_AGENT_TOKEN_FILE } = values;
  const schemes = new Set(url.map((one) => SCHEMES[URL.parse(one)?.protocol ?? '']?.tls));
  if (schemes.size > 1) throw new AgentUsageError('--url: use http:// for all instances, or https:// for all');
  if (values.tls && schemes.has(false)) throw new AgentUsageError('--tls needs https:// in --url');
  const tls = values.tls === true || schemes.has(true);
  if (!tls && (ca ?? tlsName) !== undefined)
    throw new AgentUsageError('--ca and --tls-name need https:// in --url, or --tls');
  return { tls, caFile: ca ?? env.CN_AGENT_CA_FILE, tlsName, tokenFile };
}

export const logLevelOf = (text: string | undefined): LogLevel => oneOf('--log-level', LOG_LEVELS, text ?? 'info');

function oneOf<Choice extends string>(option: string, choices: readonly Choice[], text: string): Choice {
  const chosen = choices.find((one) => one === text);
  if (chosen === undefined) throw new AgentUsageError(`${option} ${text} is not one of ${choices.join(', ')}`);
  return chosen;
}

function bootParametersOf(texts: readonly string[] = [], headnode?: boolean): Record<string, string> {
  const pairs = texts.map((text) => {
    const [, name = '', value = ''] = /^([^=\s]{1,200})=(.{0,1000})$/.exec(text) ?? [];
    if (name === '') throw new AgentUsageError(`--boot-parameter ${text} is not NAME=VALUE`);
    return [name, value] as const;
  });
  return { ...Object.fromEntries(pairs), ...(headnode === undefined ? {} : { headnode: String(headnode) }) };
}

function httpOf(values: ValuesOf<typeof agentOptions>, env: NodeJS.ProcessEnv): AgentOptions['http'] {
  const port = values['http-port'] ?? env.CN_AGENT_HTTP_PORT;
  const host = values['http-host'] ?? env.CN_AGENT_HTTP_HOST ?? '127.0.0.1';
  const from = values['http-from'] ?? listed(env.CN_AGENT_HTTP_FROM);
  const open = values['http-open'] ?? env.CN_AGENT_HTTP_OPEN === '1';
  if (port === undefined || port === '') return undefined;
  if (!/^\d{1,5}$/.test(port) || Number(port) > 65_535) throw new AgentUsageError(`--http-port ${port} is not a port`);
  if (!isIP(host)) throw new AgentUsageError(`--http-host ${host} is not an IP address`);
  for (const network of from) {
    const reason = reasonNotANetwork(network);
    if (reason !== undefined) throw new AgentUsageError(`--http-from ${network} ${reason}`);
  }
  return { host, port: Number(port), open, from };
}

function containersOf(values: ValuesOf<typeof agentOptions>, data: string): AgentOptions['containers'] {
  const { containers, 'container-path': paths = [], 'container-bridge': bridges = [], 'container-uids': uids } = values;
  if (containers !== true) {
    const containerOptions = [
      'container-path',
      'container-bridge',
      'container-uids',
      'image-url',
      'image-path',
      'image-space',
    ] as const;
    const option = containerOptions.find((name) => values[name] !== undefined);
    if (option !== undefined) throw new AgentUsageError(`--${option} needs --containers`);
    return undefined;
  }
  for (const bridge of bridges)
    if (!BRIDGE.test(bridge)) throw new AgentUsageError(`--container-bridge ${bridge} is not the name of a bridge`);
  return {
    directories: paths.map((path) => mountableOf(path, data)),
    bridges,
    uidRange: uidRangeOf(uids),
    images: imagesOf(values),
  };
}

function imagesOf(values: ValuesOf<typeof agentOptions>): ImageOptions {
  const { 'image-url': urls = [], 'image-path': directories = [], 'image-space': space = DEFAULT_IMAGE_BYTES } = values;
  checkSources('image', urls, directories);
  if (!/^[1-9]\d{0,14}$/.test(space)) throw new AgentUsageError(`--image-space ${space} is not a number of bytes`);
  return { urls, directories, maxBytes: Number(space) };
}

function packagesOf(values: ValuesOf<typeof agentOptions>): AgentOptions['packages'] {
  const { 'package-key': keyFiles = [], 'package-url': urls = [], 'package-path': directories = [] } = values;
  if (keyFiles.length === 0) {
    const one = (['package-url', 'package-path', 'package-scripts'] as const).find((name) => values[name]);
    if (one !== undefined) throw new AgentUsageError(`--${one} needs --package-key`);
    return undefined;
  }
  checkSources('package', urls, directories);
  return { keyFiles, urls, directories, allowScripts: values['package-scripts'] ?? false };
}

function checkSources(what: 'image' | 'package', urls: readonly string[], directories: readonly string[]): void {
  for (const url of urls)
    if (!/^https?:$/.test(URL.parse(url)?.protocol ?? ''))
      throw new AgentUsageError(`--${what}-url ${url} is not an http: or https: URL`);
  for (const directory of directories)
    if (!isAbsolute(directory)) throw new AgentUsageError(`--${what}-path ${directory} is not an absolute path`);
}

function resetProgramOf(path: string | undefined): string | undefined {
  if (path === undefined || isAbsolute(path)) return path;
  throw new AgentUsageError(`--factory-reset ${path} is not an absolute path`);
}

function trialMsOf(text = String(DEFAULT_TRIAL_SECONDS)): number {
  if (!/^[1-9]\d{0,4}$/.test(text)) throw new AgentUsageError(`--package-trial ${text} is not a number of seconds`);
  return Number(text) * 1000;
}

function zfsOf(names: readonly string[] = []): readonly string[] {
  const wrong = names.find((name) => reasonNotDataset(name) !== undefined);
  if (wrong === undefined) return names;
  throw new AgentUsageError(`--zfs ${wrong} is not a pool or a dataset, POOL/NAME`);
}

/** One container could reach the files of another through the agent's own directory. */
function mountableOf(path: string, data: string): string {
  if (!isAbsolute(path)) throw new AgentUsageError(`--container-path ${path} is not an absolute path`);
  const [inner, outer] = [resolve(data), normalize(path).replace(/(.)\/$/, '$1')];
  const isIn = (one: string, other: string) => `${one}/`.startsWith(other === '/' ? '/' : `${other}/`);
  if (isIn(inner, outer) || isIn(outer, inner))
    throw new AgentUsageError(`--container-path ${path} overlaps --data ${data}; give a directory apart from it`);
  return outer;
}

/** Users of the machine have lower ids, and containers have ids up to 65,535. */
function uidRangeOf(text: string | undefined): ContainerOptions['uidRange'] {
  if (text === undefined) return undefined;
  const [, from, to] = /^(\d{1,10})-(\d{1,10})$/.exec(text) ?? [];
  const [first, last] = [Number(from), Number(to)];
  if (Number.isNaN(first) || first < MIN_UIDS || last > MAX_UID || last - first + 1 < MIN_UIDS)
    throw new AgentUsageError(`--container-uids ${text} is not FROM-TO with FROM from ${MIN_UIDS} and as many ids`);
  return { first, count: last - first + 1 };
}

function listed(text = ''): string[] {
  return text
    .split(',')
    .map((one) => one.trim())
    .filter((one) => one !== '');
}
