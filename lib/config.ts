/**
 * An instance's configuration: a JSON file with camelCase keys, environment `CNAPI_…` over it (`databaseUrl` is
 * `CNAPI_DATABASE_URL`). Parsed once, frozen, passed down in slices. An unknown key is refused by name.
 */
import { readFileSync } from 'node:fs';
import { z } from 'zod';
import { isLoopback, reasonNotANetwork, type TrustedNetwork } from './access/networks.ts';
import { parseRedisUrl } from './bus/redis-url.ts';
import { CnapiError, type ErrorFields } from './errors.ts';
import { hostUrls } from './moray/database-url.ts';

/** The environment has texts only; nothing else that could be read as a number is meant as one. */
const whole = (minimum: number, maximum: number) =>
  z.preprocess(
    (value) => (typeof value === 'string' && /^\d{1,15}$/.test(value) ? Number(value) : value),
    z.number().int().min(minimum).max(maximum),
  );
const port = whole(0, 65_535);
const ms = whole(1, 86_400_000);

/** What `parse` throws is what is wrong with it. */
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
/** `{"10.0.0.0/24": "operator", "10.0.1.0/24": ["reader", "agent"]}`; in the environment `10.0.0.0/24=operator,10.0.1.0/24=reader+agent`. */
const trustedNetworks = z
  .preprocess(networksOfText, z.record(z.string(), networkRoles))
  .superRefine((networks, context) => {
    for (const text of Object.keys(networks)) {
      const reason = reasonNotANetwork(text);
      if (reason !== undefined) context.addIssue({ code: 'custom', message: reason, path: [text] });
    }
  })
  .transform((networks): TrustedNetwork[] => Object.entries(networks).map(([text, roles]) => ({ text, roles })));

const schema = z.strictObject({
  /** Stable name of this instance; made anew at each start when absent. */
  cnapiUuid: z.guid().toLowerCase().optional(),
  host: z.string().min(1).default('127.0.0.1'),
  port: port.default(8080),
  /** Host that agents and the name server are given for this instance; `host` when absent. */
  advertiseHost: z.string().min(1).optional(),
  databaseUrl: parsed(z.string('is required, a postgres:// URL'), hostUrls),
  /** A pooler in transaction mode stands between: nothing is left to a session. */
  databasePooler: z.enum(['transaction']).optional(),
  /** Around the pooler, for LISTEN/NOTIFY; `databaseUrl` when absent. */
  databaseDirectUrl: parsed(z.string(), hostUrls).optional(),
  databasePoolSize: whole(1, 200).default(10),
  /** Absent: the database's LISTEN/NOTIFY carries the bus. */
  redisUrl: parsed(z.string(), parseRedisUrl).optional(),
  datacenter: z
    .string()
    .regex(/^[a-z0-9-]{1,63}$/, 'is not a DNS label')
    .default('local'),
  domain: z
    .string()
    .regex(/^[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})*$/, 'is not a DNS name')
    .default('cnapi.internal'),
  logLevel: z.enum(['trace', 'debug', 'info', 'warn', 'error', 'fatal']).default('info'),
  maxAgents: whole(1, 100_000).default(18_000),
  /** PEM: the certificate and what leads from it to its CA; its key. With them the port speaks TLS, agents' link included. */
  tlsCertFile: z.string().min(1).optional(),
  tlsKeyFile: z.string().min(1).optional(),

  /** `tokens`: callers and agents bring one. `open`: nobody needs one, and only this machine can reach it. */
  access: z.enum(['open', 'tokens'], 'is neither open nor tokens').default('open'),
  /** Whoever comes from there without a token has that role. */
  trustedNetworks: trustedNetworks.default([]),
  /** Of one address (of IPv6: one /64), where tokens are asked for; 0 for no limit. */
  requestsPerSecond: whole(0, 1_000_000).default(500),
  connectionsPerSource: whole(0, 100_000).default(500),
  failedSignInsPerMinute: whole(0, 1_000_000).default(30),

  heartbeatMs: ms.default(1000),
  silenceMs: ms.default(2000),
  serverSilenceMs: ms.default(3000),
  checkMs: ms.default(250),
  beatMs: ms.default(1000),
  leaseMs: ms.default(5000),
  adoptGraceMs: ms.default(5000),
  startGraceMs: ms.default(18_000),
  slowPollMs: ms.default(5000),
  slowPollNoBusMs: ms.default(1000),
  reconnectMaxMs: ms.default(8000),
  drainAgentsMs: ms.default(30_000),
  drainWaitsMs: ms.default(60_000),
  balanceQuietMs: ms.default(30_000),
  oldHeartbeatLifetimeMs: ms.default(11_000),
  oldSightingsMs: ms.default(4000),
  oldGraceMs: ms.default(1000),
  taskStartByMs: ms.default(30_000),
  taskResendMs: ms.default(5000),
  taskOverdueMs: ms.default(60_000),
});

export type Config = Readonly<z.output<typeof schema>>;

export class ConfigError extends CnapiError {
  constructor(message: string, fields: ErrorFields = {}) {
    super('InvalidConfig', 500, message, fields);
  }
}

/** Reads `file` (if given) and the environment. @throws ConfigError naming every wrong key and how to mend it. */
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

const KEY_OF_VARIABLE = new Map(
  Object.keys(schema.shape).map((key) => [
    `CNAPI_${key.replace(/[A-Z]/g, (letter) => `_${letter}`).toUpperCase()}`,
    key,
  ]),
);
/** With the same prefix but for other programs of the project. */
const FOREIGN_VARIABLE = /^CNAPI_(TEST_|URL$|DNS$|DNS_NAME$|TLS$|TOKEN$|TOKEN_FILE$|CA_FILE$|CONFIG$)/;

function fromEnvironment(environment: Record<string, string | undefined>): Record<string, unknown> {
  const found: Record<string, unknown> = {};
  for (const [variable, value] of Object.entries(environment)) {
    if (!variable.startsWith('CNAPI_') || value === undefined || FOREIGN_VARIABLE.test(variable)) continue;
    const name = variable === 'CNAPI_UUID' ? 'CNAPI_CNAPI_UUID' : variable;
    const key = KEY_OF_VARIABLE.get(name);
    if (key === undefined)
      throw new ConfigError(
        `Environment variable ${variable} names no configuration key (see docs/operating.md for those there are)`,
      );
    found[key] = value;
  }
  return found;
}

function describe(issue: z.core.$ZodIssue): string {
  if (issue.code === 'unrecognized_keys')
    return `unknown key ${issue.keys.join(', ')} (see docs/operating.md for those there are)`;
  return `${issue.path.join('.')}: ${issue.message}`;
}

/** Other texts stay as they are, to be complained of. */
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
