/** The fleet's command line. */

import { parseArgs } from 'node:util';
import type { LogLevel } from '../../platform/log.ts';
import type { AgentDiscovery } from '../link/discovery.ts';
import { discoveryOptions } from '../option-table.ts';
import {
  asUsageError,
  type CredentialValues,
  checkCredentialValues,
  logLevelOf,
  parseAgentDiscovery,
} from '../options.ts';
import { AgentUsageError } from '../usage-error.ts';
import type { SysinfoSize } from './simulated-sysinfo.ts';

export interface FleetOptions {
  discovery: AgentDiscovery;
  credentials: CredentialValues;
  agents: number;
  legacy: number;
  agentsPerSecond: number;
  data: string | undefined;
  seed: string | undefined;
  sysinfoSize: SysinfoSize;
  localAddresses: number;
  logLevel: LogLevel;
}

export const FLEET_USAGE = `Usage: npm run fleet -- --agents N [options]

Simulated agents, thousands in one process: the real agent's link, journal and tasks on simulated machines.

  --agents N           number of agents
  --legacy N           number of them that use the legacy protocol and take no tasks (default 0). silence, vanish,
                       slow and cut are faults of links, and do not affect them
  --rate N             agents started per second (default 500)
  --data DIR           directory for the seed of the servers' uuids: the next start has the same servers
  --seed TEXT          the seed itself; without --data or --seed each start has new servers
  --sysinfo SIZE       small (default) or real: about 40 KB for each server
  --local-addresses N  connect from 127.0.0.1 to 127.0.0.N in turn
  --dns, --datacenter, --domain, --url, --log-level, --tls, --ca, --tls-name, --token-file
                       as for npm run agent; all agents use one token, which must not be for one server
  --help               this text

While it runs it reads commands from stdin, one JSON object per line:
  {"do":"status"}  {"do":"silence","count":10,"ms":5000}  {"do":"vanish","count":10,"ms":5000}  {"do":"slow","ms":200}
  {"do":"cut","uuids":["…"]}  {"do":"restart","count":1}  {"do":"reinstall","count":1}
`;

/** Returns undefined when only the help text was requested. */
export function parseFleetOptions(args: string[], env: NodeJS.ProcessEnv = {}): FleetOptions | undefined {
  const options = {
    ...discoveryOptions,
    agents: { type: 'string' },
    legacy: { type: 'string' },
    rate: { type: 'string' },
    data: { type: 'string' },
    seed: { type: 'string' },
    sysinfo: { type: 'string' },
    'local-addresses': { type: 'string' },
  } as const;
  const values = asUsageError(() => parseArgs({ args, options }).values);
  if (values.help) return undefined;
  if (values.agents === undefined) throw new AgentUsageError('--agents N is missing');
  const agents = wholeNumber('--agents', values.agents, { min: 0, max: 100_000 });
  return {
    discovery: parseAgentDiscovery(values),
    credentials: checkCredentialValues(values, env),
    agents,
    legacy: wholeNumber('--legacy', values.legacy ?? '0', { min: 0, max: agents }),
    agentsPerSecond: wholeNumber('--rate', values.rate ?? '500', { min: 1, max: 100_000 }),
    data: values.data,
    seed: values.seed,
    sysinfoSize: sysinfoSizeOf(values.sysinfo),
    localAddresses: wholeNumber('--local-addresses', values['local-addresses'] ?? '0', { min: 0, max: 254 }),
    logLevel: logLevelOf(values['log-level']),
  };
}

function wholeNumber(option: string, text: string, { min, max }: { min: number; max: number }): number {
  const value = /^\d+$/.test(text) ? Number(text) : Number.NaN;
  if (value >= min && value <= max) return value;
  throw new AgentUsageError(`${option} ${text} is not a whole number from ${min} to ${max}`);
}

function sysinfoSizeOf(text: string | undefined): SysinfoSize {
  if (text === undefined || text === 'small') return 'small';
  if (text === 'real') return 'real';
  throw new AgentUsageError(`--sysinfo ${text} is not small or real`);
}
