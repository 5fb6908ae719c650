/**
 * The options of the agent: each is written once, as `parseArgs` takes it and with its line of the
 * usage text. Used by options.ts, which checks their values.
 */
import { LOG_LEVELS } from '../platform/log.ts';

const HELP_COLUMN = 23;

const text = (value: string, ...help: string[]) => ({ type: 'string', value, help }) as const;
const list = (value: string, ...help: string[]) => ({ ...text(value, ...help), multiple: true }) as const;
const flag = (...help: string[]) => ({ type: 'boolean', help }) as const;

const addressOptions = {
  dns: text('ADDRESS:PORT', "name server to ask (default: the system's)"),
  datacenter: text('NAME', 'the datacenter whose instances are asked for (default local)'),
  domain: text('NAME', 'the domain of their names (default cnapi.internal)'),
  url: list('URL', 'an instance, http://HOST:PORT or https://HOST:PORT; may be repeated'),
};

const credentialOptions = {
  tls: flag('use TLS for addresses from DNS; with https:// in --url the agent uses TLS for all instances'),
  ca: text('FILE', "trust certificates of this CA only (PEM; default: the system's, or CN_AGENT_CA_FILE)"),
  'tls-name': text(
    'NAME',
    'the name that certificates must contain, whichever address is dialled (default: the host name in',
    '--url for its addresses, else the address itself)',
  ),
  'token-file': text('FILE', "the agent's token, mode 600 (default: DATA/token if it exists, or CN_AGENT_TOKEN_FILE)"),
};

const ownOptions = {
  data: text('DIR', 'directory for the identity and the journal; one agent at a time may use it (required)'),
  uuid: text('UUID', "this server's uuid (default: the stored one, else the machine's own, else a random one)"),
  'allow-reboot': flag('carry out server_reboot'),
  'allow-setup': flag('let server_setup name this machine and run its script'),
  'factory-reset': text(
    'FILE',
    'the program that server_factory_reset runs to reset this machine (default: none, and the task is refused)',
  ),
  'needs-setup': flag('this server is not set up before its first server_setup (default: it is)'),
  'encrypted-zpool': flag('the zpool of this machine is encrypted: keep its recovery configurations in DATA/recovery'),
  'push-commands': text(
    'FILE',
    'run only the commands of push jobs that FILE allows (default: all); read again when it changes. JSON:',
    '{"allow": ["exact command", {"pattern": "regular expression"}], "env": ["VARIABLE"]}',
  ),
  headnode: flag('this machine is the headnode: the same as --boot-parameter headnode=true'),
  'boot-parameter': list(
    'NAME=VALUE',
    "a boot parameter to report with those of the kernel's command line; may be repeated",
  ),
  protocol: text(
    'NAME',
    "auto (default): the agent link, or, if no instance has one, POSTs as Triton's agents send them;",
    'link: the link only; legacy: POSTs only',
  ),
  'http-port': text(
    'PORT',
    "also take tasks over HTTP, as Triton's agents do; CNAPIs without the link post tasks there",
    '(default: off, or CN_AGENT_HTTP_PORT)',
  ),
  'http-host': text(
    'HOST',
    'the address for that (default 127.0.0.1, or CN_AGENT_HTTP_HOST). Callers of the port can run commands',
    'on this machine. They need the token in DATA/http-token, which is created at the first start',
  ),
  'http-from': list(
    'NETWORK',
    'callers from this address or network need no token, because CNAPIs without the link have none;',
    'may be repeated (or CN_AGENT_HTTP_FROM, separated by commas)',
  ),
  'http-open': flag("callers of the port need no token, as with Triton's agent (or CN_AGENT_HTTP_OPEN=1)"),
  containers: flag('run containers, by runc or crun and conmon of this machine; DATA becomes passable for other users'),
  'container-path': list(
    'DIR',
    'a directory that containers may mount, with all below it; may be repeated (default: none)',
  ),
  'container-bridge': list('NAME', 'a bridge that containers may be connected to; may be repeated (default: none)'),
  'container-uids': text(
    'FROM-TO',
    'user and group ids of this machine for those of containers, at least 65536 that nobody else has',
    '(default 200000-265535)',
  ),
  'image-url': list('URL', 'load images from URLs that begin with this one; may be repeated (default: none)'),
  'image-path': list('DIR', 'load images from files in this directory; may be repeated (default: none)'),
  'image-space': text('BYTES', 'how much images may use, unpacked (default 10737418240, which is 10 GiB)'),
  'package-key': list(
    'FILE',
    'install packages of agents that this public key has signed (PEM, Ed25519); may be repeated (default: none).',
    'Whoever owns the token can then run anything on this machine',
  ),
  'package-url': list('URL', 'load packages from URLs that begin with this one; may be repeated (default: none)'),
  'package-path': list('DIR', 'load packages from files in this directory; may be repeated (default: none)'),
  'package-scripts': flag('run the programs install and uninstall of packages of other agents'),
  'package-trial': text(
    'SECONDS',
    'a new version of this agent must be connected for a tenth of this time, within this time; else the',
    'launcher goes back to the version before (default 120)',
  ),
  zfs: list(
    'DATASET',
    'let callers change this dataset of ZFS and all below it, POOL or POOL/NAME; may be repeated (default: none)',
  ),
};

const programOptions = {
  'log-level': text('LEVEL', `${LOG_LEVELS.join(', ')} (default info)`),
  config: text('FILE', 'read options from a JSON object in FILE, in camelCase; the command line takes precedence'),
  help: flag('this text'),
};

export const agentOptions = { ...addressOptions, ...credentialOptions, ...ownOptions, ...programOptions };

const { config: _, ...sharedOptions } = programOptions;
/** Options that the fleet of simulated agents has, too. */
export const discoveryOptions = { ...addressOptions, ...credentialOptions, ...sharedOptions };

export const AGENT_USAGE = `Usage: npm run agent -- [options]

The agent of this machine: it keeps a connection to an instance of cnapi and carries out the tasks that it receives.

Where to find instances: by DNS, or --url
${linesOf(addressOptions)}
Authentication and TLS; files are read again when they change
${linesOf(credentialOptions)}
${linesOf(ownOptions)}${linesOf(programOptions)}`;

/** The lines of these options in the usage text. */
function linesOf(options: Readonly<Record<string, { value?: string; help: readonly string[] }>>): string {
  const lines = Object.entries(options).flatMap(([name, { value, help }]) => {
    const option = `  --${name}${value === undefined ? '' : ` ${value}`}`;
    const isLong = option.length >= HELP_COLUMN;
    const [first = '', ...others] = isLong ? ['', ...help] : help;
    return [
      isLong ? option : option.padEnd(HELP_COLUMN) + first,
      ...others.map((line) => ' '.repeat(HELP_COLUMN) + line),
    ];
  });
  return `${lines.join('\n')}\n`;
}
