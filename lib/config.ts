/**
 * An instance's configuration: a JSON file with camelCase keys, overridden by environment variables
 * `CNAPI_…` (`databaseUrl` is `CNAPI_DATABASE_URL`). Parsed once, frozen, passed down in slices. An
 * unknown key is refused by name.
 */
import { readFileSync } from 'node:fs';
import { z } from 'zod';
import { isLoopback, reasonNotANetwork, type TrustedNetwork } from './access/networks.ts';
import { parseRedisUrl } from './bus/redis-url.ts';
import { CnapiError, type ErrorFields } from './errors.ts';
import { hostUrls } from './moray/database-url.ts';

/** Environment values are strings. Only a string of digits is read as a number. */
const whole = (minimum: number, maximum: number) =>
  z.preprocess(
    (value) => (typeof value === 'string' && /^\d{1,15}$/.test(value) ? Number(value) : value),
    z.number().int().min(minimum).max(maximum),
  );
const port = whole(0, 65_535);
const ms = whole(1, 86_400_000);

/** Checks the text with `parse`; the message that `parse` throws becomes the issue. */
const parsed = (text: z.ZodString, parse: (value: string) => unknown) =>
  text.superRefine((value, context) => {
    try {
      parse(value);
    } catch (error) {
      context.addIssue({ code: 'custom', message: (error as Error).message });
    }
  });
const networkRole = z.enum(['reader', 'operator', 'agent'], 'is not reader, operator or agent');
const networkRoles = z.union([networkRole.transform((role) => [role]), z.array(networkRole).min(1)]);
/**
 * In a file `{"10.0.0.0/24": "operator", "10.0.1.0/24": ["reader", "agent"]}`; in the environment
 * `10.0.0.0/24=operator,10.0.1.0/24=reader+agent`.
 */
const trustedNetworks = z
  .preprocess(networksOfText, z.record(z.string(), networkRoles))
  .superRefine((networks, context) => {
    for (const text of Object.keys(networks)) {
      const reason = reasonNotANetwork(text);
      if (reason !== undefined) context.addIssue({ code: 'custom', message: reason, path: [text] });
    }
  })
  .transform((networks): TrustedNetwork[] => Object.entries(networks).map(([text, roles]) => ({ text, roles })));

/** A list of networks; in the environment separated by commas. */
const networks = z.preprocess(
  (value) => (typeof value === 'string' ? value.split(',').map((one) => one.trim()) : value),
  z.array(
    z.string().superRefine((text, context) => {
      const reason = reasonNotANetwork(text);
      if (reason !== undefined) context.addIssue({ code: 'custom', message: reason });
    }),
  ),
);

const schema = z.strictObject({
  cnapiUuid: z
    .guid()
    .toLowerCase()
    .optional()
    .describe(
      'Name of this instance; give each its own and keep it. Without it each start makes a new one. In the environment `CNAPI_UUID`',
    ),
  host: z
    .string()
    .min(1)
    .max(255)
    .default('127.0.0.1')
    .describe('Address it listens on; loopback only while `access` is `open`'),
  port: port.default(8080).describe('Port for REST and the agent link alike; 0 takes a free one'),
  advertiseHost: z
    .string()
    .min(1)
    .max(255)
    .optional()
    .describe(
      'Host that agents, callers (`GET /instances`) and the name server are given for it; `host` when absent, needed where that is 0.0.0.0 or ::',
    ),
  databaseUrl: parsed(z.string('is required, a postgres:// URL'), hostUrls).describe(
    '`postgres://…`, Postgres 15 or newer; tables are made and migrated at start, by several instances at once if need be. Several hosts as libpq has them: `postgres://user:password@h1:5432,h2:5432/db?target_session_attrs=read-write` ([failover](failover.md))',
  ),
  databasePooler: z
    .enum(['transaction'])
    .optional()
    .describe(
      '`transaction`: `databaseUrl` leads to a pooler in transaction mode ([pgbouncer](failover.md#pgbouncer))',
    ),
  databaseDirectUrl: parsed(z.string(), hostUrls)
    .optional()
    .describe(
      'Around the pooler, for LISTEN/NOTIFY; `databaseUrl` when absent. Needed with `databasePooler` and no `redisUrl`',
    ),
  databasePoolSize: whole(1, 200)
    .default(10)
    .describe(
      'Connections for requests and tasks; beside them one each for the beat, for verdicts, for sightings of old agents and for sign-ins, and two for the bus without Redis',
    ),
  redisUrl: parsed(z.string(), parseRedisUrl)
    .optional()
    .describe(
      "`redis://…`, or [under Sentinel](failover.md#redis-under-sentinel) `redis+sentinel://:password@s1:26379,s2:26379/mymaster`; without it the database's LISTEN/NOTIFY carries the bus",
    ),
  datacenter: z
    .string()
    .regex(/^[a-z0-9-]{1,63}$/, 'is not a DNS label')
    .default('local')
    .describe('Of the DNS name `cnapi.<datacenter>.<domain>`; a DNS label'),
  domain: z
    .string()
    .regex(/^[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})*$/, 'is not a DNS name')
    .default('cnapi.internal')
    .describe('Of the same'),
  logLevel: z
    .enum(['trace', 'debug', 'info', 'warn', 'error', 'fatal'])
    .default('info')
    .describe('trace, debug, info, warn, error or fatal; `POST /loglevel` changes it while it runs'),
  maxAgents: whole(1, 100_000).default(18_000).describe('Agents it takes; more are refused with 503 and go elsewhere'),
  tlsCertFile: z
    .string()
    .min(1)
    .optional()
    .describe(
      'PEM: the certificate, followed by what leads from it to its CA. With `tlsKeyFile` the port speaks TLS only ([TLS](operating.md#tls))',
    ),
  tlsKeyFile: z.string().min(1).optional().describe('PEM: its key, without a passphrase'),

  access: z
    .enum(['open', 'tokens'], 'is neither open nor tokens')
    .default('open')
    .describe(
      '`tokens`: callers and agents bring one. `open`: nobody needs one, and only this machine can reach it ([access](access.md))',
    ),
  trustedNetworks: trustedNetworks
    .default([])
    .describe(
      'Who comes from there without a token has that role: `{"10.0.0.0/24": "reader"}`, in the environment `10.0.0.0/24=reader`',
    ),
  agentNetworks: networks
    .default([])
    .describe(
      'Where agents that post (those without a link) may be given tasks, beside the address they post from and the networks that `trustedNetworks` gives the role agent: `["10.0.0.0/24"]`, in the environment `10.0.0.0/24,10.0.1.0/24`',
    ),
  requestsPerSecond: whole(0, 1_000_000)
    .default(500)
    .describe('Of one address (of IPv6: one /64), with `tokens`; 0 for no limit'),
  connectionsPerSource: whole(0, 100_000).default(500).describe('Of one address, with `tokens`; 0 for no limit'),
  answerMemoryMiB: whole(1, 65_536)
    .default(128)
    .describe('Memory for answers that are being read and sent; beyond it 503 `AnswerMemoryFull`'),
  answerMemoryPerCallerMiB: whole(0, 65_536)
    .default(32)
    .describe(
      'Of that for one token (or address without one), with `tokens`; beyond it 429 `AnswerShareFull`; 0 for no limit',
    ),
  eventStreamsPerCaller: whole(0, 100_000)
    .default(100)
    .describe(
      'Streams of events of one token (or address without one) on this instance, with `tokens`; 0 for no limit',
    ),
  waitsPerCaller: whole(0, 100_000)
    .default(1000)
    .describe(
      'Waits for tasks and tickets of one token (or address without one) on this instance, with `tokens`; 0 for no limit',
    ),
  logLinesPerSource: whole(0, 1_000_000)
    .default(200)
    .describe(
      'Lines of the log per second about requests of one address; the others are counted in one line; 0 for no limit',
    ),
  newServersPerHour: whole(0, 1_000_000)
    .default(20_000)
    .describe(
      'Servers that nobody knows yet, made on this instance by one agent token without `--server` (or address without a token), with `tokens`; 0 for no limit',
    ),
  failedSignInsPerMinute: whole(0, 1_000_000).default(30).describe('Of one address, with `tokens`; 0 for no limit'),

  heartbeatMs: ms.default(1000).describe("The agents' beat"),
  silenceMs: ms
    .default(2000)
    .describe('An instance that heard nothing from an agent for so long calls it silent; at least two heartbeats'),
  serverSilenceMs: ms
    .default(3000)
    .describe('An agent that heard nothing from its instance for so long seeks another; at least two heartbeats'),
  checkMs: ms
    .default(250)
    .describe('The tick in which silence, leases and graces are counted; at most a quarter of `silenceMs`'),
  beatMs: ms.default(1000).describe("An instance's beat, in the database"),
  leaseMs: ms
    .default(5000)
    .describe('An instance whose beat stands still for so long counts as dead; at least three beats'),
  adoptGraceMs: ms
    .default(5000)
    .describe("How long a dead instance's agents have to come to another before their servers are `unknown`"),
  startGraceMs: ms
    .default(18_000)
    .describe(
      'How long an instance that has just started, thawed or got its database back judges no server it never held; at least `reconnectMaxMs`',
    ),
  slowPollMs: ms.default(5000).describe('How often everything is read that hints on the bus may have missed'),
  slowPollNoBusMs: ms.default(1000).describe('The same while the bus is lost'),
  reconnectMaxMs: ms.default(8000).describe('Longest pause between two attempts of an agent'),
  drainAgentsMs: ms.default(30_000).describe('Of a drain, from its beginning: how long agents have to go elsewhere'),
  drainWaitsMs: ms
    .default(60_000)
    .describe(
      'Of a drain, from its beginning: when what still waits is answered; at least `drainAgentsMs`. The process is gone 15 s later: raise `TimeoutStopSec`, `timeout_seconds` or `--stop-timeout` (90 s) with it',
    ),
  balanceQuietMs: ms
    .default(30_000)
    .describe(
      "How long after instances came, left or began to drain they do not even out; nor do they while one's beat has stood still for half of `leaseMs`",
    ),
  oldHeartbeatLifetimeMs: ms
    .default(11_000)
    .describe('Of agents that post heartbeats (each 5 s): how long one proves anything'),
  oldSightingsMs: ms
    .default(4000)
    .describe('How often an instance records which of those it heard; at most half of `oldHeartbeatLifetimeMs`'),
  oldGraceMs: ms
    .default(1000)
    .describe('A server heard by no instance for the sum of these three is `unknown`; at least two `checkMs`'),
  taskStartByMs: ms
    .default(30_000)
    .describe(
      'A task no agent has taken by then ends as `failure`, `NotTaken`; time in which the database was away, or the server was full, does not count',
    ),
  taskResendMs: ms.default(5000).describe('A task not accepted by then is sent again'),
  taskOverdueMs: ms.default(60_000).describe('This long past its timeout a task is ended from here'),
});

export type Config = Readonly<z.output<typeof schema>>;

/** Networks in which agents may be called, wherever they connected from. */
export function agentNetworksOf({ agentNetworks, trustedNetworks }: Pick<Config, 'agentNetworks' | 'trustedNetworks'>) {
  const trusted = trustedNetworks.filter(({ roles }) => roles.includes('agent')).map(({ text }) => text);
  return [...agentNetworks, ...trusted];
}

export interface ConfigKey {
  key: string;
  /** The name of its environment variable. */
  variable: string;
  /** Undefined when there is no default. */
  default: unknown;
  isRequired: boolean;
  description: string;
}

/** All keys, for docs/configuration.md. */
export function configKeys(): ConfigKey[] {
  return Object.entries(schema.shape).map(([key, type]) => ({
    key,
    variable: key === 'cnapiUuid' ? 'CNAPI_UUID' : variableOf(key),
    default: type instanceof z.ZodDefault ? type.def.defaultValue : undefined,
    isRequired: !(type instanceof z.ZodDefault || type instanceof z.ZodOptional),
    description: type.description ?? '',
  }));
}

export class ConfigError extends CnapiError {
  constructor(message: string, fields: ErrorFields = {}) {
    super('InvalidConfig', 500, message, fields);
  }
}

/**
 * Reads `file` (if given) and the environment. @throws ConfigError naming every wrong key and how
 * to fix it
 */
export function loadConfig(file: string | undefined, environment: Record<string, string | undefined>): Config {
  return parseConfig({ ...(file === undefined ? {} : readFile(file)), ...fromEnvironment(environment) });
}

/** @throws ConfigError */
export function parseConfig(input: Record<string, unknown>): Config {
  const found = schema.safeParse(input);
  if (!found.success) throw new ConfigError(`Configuration: ${found.error.issues.map(describe).join('; ')}`);
  checkRelations(found.data);
  return Object.freeze(found.data);
}

function readFile(file: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(readFileSync(file, 'utf8'));
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  } catch (cause) {
    throw new ConfigError(`Configuration file ${file} cannot be read: ${(cause as Error).message}`, { cause });
  }
  throw new ConfigError(`Configuration file ${file} does not hold a JSON object`);
}

const variableOf = (key: string): string => `CNAPI_${key.replace(/[A-Z]/g, (letter) => `_${letter}`).toUpperCase()}`;
const KEY_OF_VARIABLE = new Map(Object.keys(schema.shape).map((key) => [variableOf(key), key]));
/** Variables with the same prefix for other programs of the project. */
const FOREIGN_VARIABLE = /^CNAPI_(TEST_|URL$|DNS$|DNS_NAME$|TLS$|TOKEN$|TOKEN_FILE$|CA_FILE$|CONFIG$)/;

function fromEnvironment(environment: Record<string, string | undefined>): Record<string, unknown> {
  const found: Record<string, unknown> = {};
  for (const [variable, value] of Object.entries(environment)) {
    if (!variable.startsWith('CNAPI_') || value === undefined || FOREIGN_VARIABLE.test(variable)) continue;
    const name = variable === 'CNAPI_UUID' ? 'CNAPI_CNAPI_UUID' : variable;
    const key = KEY_OF_VARIABLE.get(name);
    if (key === undefined)
      throw new ConfigError(
        `Environment variable ${variable} names no configuration key (see docs/configuration.md for those there are)`,
      );
    found[key] = value;
  }
  return found;
}

function describe(issue: z.core.$ZodIssue): string {
  if (issue.code === 'unrecognized_keys')
    return `unknown key ${issue.keys.join(', ')} (see docs/configuration.md for those there are)`;
  return `${issue.path.join('.')}: ${issue.message}`;
}

/** Any other text is returned unchanged, so that validation refuses it. */
function networksOfText(value: unknown): unknown {
  if (typeof value !== 'string') return value;
  const pairs = value.split(',').map((pair) => pair.split('='));
  if (pairs.some((pair) => pair.length !== 2)) return value;
  return Object.fromEntries(pairs.map(([network = '', roles = '']) => [network.trim(), roles.trim().split('+')]));
}

const WILDCARDS = ['0.0.0.0', '::'];

function checkRelations(config: Config): void {
  const wrong = [
    [
      config.access === 'open' && !isLoopback(config.host),
      `host ${config.host} can be reached from other machines, and access is open: set access to "tokens" and make a first ` +
        'token with `cnapi token create admin --role admin --config FILE`, or set host to 127.0.0.1',
    ],
    [
      WILDCARDS.includes(config.host) && config.advertiseHost === undefined,
      `host ${config.host} stands for every address of this machine: set advertiseHost to the one that agents are to use`,
    ],
    [
      config.access === 'open' && config.trustedNetworks.length > 0,
      'trustedNetworks has no meaning while access is open: set access to "tokens"',
    ],
    [config.silenceMs < 2 * config.heartbeatMs, 'silenceMs must be at least 2 × heartbeatMs'],
    [config.serverSilenceMs < 2 * config.heartbeatMs, 'serverSilenceMs must be at least 2 × heartbeatMs'],
    [config.checkMs * 4 > config.silenceMs, 'checkMs must be at most a quarter of silenceMs'],
    [config.leaseMs < 3 * config.beatMs, 'leaseMs must be at least 3 × beatMs'],
    [config.drainWaitsMs < config.drainAgentsMs, 'drainWaitsMs must be at least drainAgentsMs'],
    [
      config.oldSightingsMs * 2 > config.oldHeartbeatLifetimeMs,
      'oldSightingsMs must be at most half of oldHeartbeatLifetimeMs',
    ],
    [config.oldGraceMs < 2 * config.checkMs, 'oldGraceMs must be at least 2 × checkMs'],
    [
      config.databasePooler !== undefined && config.redisUrl === undefined && config.databaseDirectUrl === undefined,
      'LISTEN/NOTIFY does not pass databasePooler; give databaseDirectUrl or redisUrl',
    ],
    [config.startGraceMs < config.reconnectMaxMs, 'startGraceMs must be at least reconnectMaxMs'],
    [
      (config.tlsCertFile === undefined) !== (config.tlsKeyFile === undefined),
      'tlsCertFile and tlsKeyFile go together: set both, or none',
    ],
  ].flatMap(([bad, message]) => (bad ? [message] : []));
  if (wrong.length > 0) throw new ConfigError(`Configuration: ${wrong.join('; ')}`);
}
