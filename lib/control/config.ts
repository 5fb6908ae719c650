/**
 * An instance's configuration: a JSON file with camelCase keys, overridden by environment variables
 * `CNAPI_…` (`databaseUrl` is `CNAPI_DATABASE_URL`). Parsed once, frozen, passed down in slices. An
 * unknown key is refused by name. The settings of a noun are in its folder (`settings.ts`).
 */

import { readFileSync } from 'node:fs';
import { z } from 'zod';
import { parseRedisUrl } from '../platform/bus/redis-url.ts';
import { CnapiError, type ErrorFields } from '../platform/errors.ts';
import { LOG_LEVELS } from '../platform/log.ts';
import { parseBrokerAddress } from '../platform/network/broker-address.ts';
import { isLoopback } from '../platform/network/networks.ts';
import { parsed } from '../platform/parsed-text.ts';
import { hostUrls } from '../platform/postgres/database-url.ts';
import { flag, whole } from '../platform/setting-rules.ts';
import { accessSettings } from './access/settings.ts';
import { annealerSettings } from './annealer/settings.ts';
import { limitSettings } from './http/limits/settings.ts';
import { legacySettings } from './legacy/settings.ts';
import { placementSettings } from './placement/settings.ts';
import { rosterSettings } from './roster/settings.ts';
import { taskSettings } from './tasks/settings.ts';
import { urSettings } from './ur/settings.ts';

const schema = z.strictObject({
  cnapiUuid: z
    .guid()
    .toLowerCase()
    .optional()
    .describe(
      'Name of this instance, a uuid. Give each instance its own, and keep it; without it each start creates a new one. In the environment `CNAPI_UUID`',
    ),
  host: z
    .string()
    .min(1)
    .max(255)
    .default('127.0.0.1')
    .describe('Address on which it listens; only loopback while `access` is `open`'),
  port: whole(0, 65_535).default(8080).describe('Port for both REST and the agent link; 0 means any free port'),
  advertiseHost: z
    .string()
    .min(1)
    .max(255)
    .optional()
    .describe(
      'Host by which agents, callers (`GET /instances`) and the name server reach this instance; `host` when absent, required if `host` is 0.0.0.0 or ::',
    ),
  databaseUrl: parsed(z.string('is required, a postgres:// URL'), hostUrls).describe(
    '`postgres://…`, Postgres 15 or newer. Each start creates or migrates the tables; several instances may start concurrently. Several hosts are written as for libpq: `postgres://user:password@h1:5432,h2:5432/db?target_session_attrs=read-write` ([failover](failover.md))',
  ),
  databasePooler: z
    .enum(['transaction'])
    .optional()
    .describe(
      '`transaction`: `databaseUrl` is the address of a pooler in transaction mode ([pgbouncer](failover.md#pgbouncer))',
    ),
  databaseDirectUrl: parsed(z.string(), hostUrls)
    .optional()
    .describe(
      'The database without the pooler, for LISTEN/NOTIFY; `databaseUrl` when absent. Required with `databasePooler` and no `redisUrl`',
    ),
  databasePoolSize: whole(1, 200)
    .default(10)
    .describe(
      'Connections for requests and tasks. The instance opens seven more: three for agents that connect, and one each for its beat, for status changes, for heartbeats of legacy agents and for sign-ins; and two for the bus if there is no Redis',
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
    .describe('The datacenter in the DNS name `cnapi.<datacenter>.<domain>`; a DNS label'),
  domain: z
    .string()
    .regex(/^[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})*$/, 'is not a DNS name')
    .default('cnapi.internal')
    .describe('The domain in the same name'),
  rabbitmq: parsed(z.string(), parseBrokerAddress)
    .optional()
    .describe(
      'RabbitMQ of the datacenter, `user:password:host:port` as in Triton, or `host:port` (guest). Servers that boot find it in their kernel arguments ([boot parameters](boot.md)); instances do not connect to it, but to `amqpUrl`',
    ),
  smtEnabled: flag
    .default(true)
    .describe(
      'Whether servers that are not known yet boot with simultaneous multithreading: `smt_enabled` of `GET /boot/default`',
    ),
  logLevel: z
    .enum(LOG_LEVELS)
    .default('info')
    .describe('trace, debug, info, warn, error or fatal; `POST /loglevel` changes it while the instance runs'),
  maxAgents: whole(1, 100_000)
    .default(18_000)
    .describe(
      'Most agents that may be connected to this instance; others are refused with 503 and try another instance',
    ),
  tlsCertFile: z
    .string()
    .min(1)
    .optional()
    .describe(
      'PEM file: the certificate, followed by the intermediate certificates up to its CA. With `tlsKeyFile` the port accepts only TLS ([TLS](operating.md#tls))',
    ),
  tlsKeyFile: z.string().min(1).optional().describe('PEM file: its key, without a passphrase'),
  ...accessSettings,
  ...limitSettings,
  ...rosterSettings,
  ...legacySettings,
  ...taskSettings,
  ...placementSettings,
  ...annealerSettings,
  ...urSettings,
});

export type Config = Readonly<z.output<typeof schema>>;

interface ConfigKey {
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

/** Reads `file`, if given, and the environment. @throws ConfigError that names every wrong key */
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

const variableOf = (key: string): string => `CNAPI_${key.replace(/MiB|[A-Z]/g, (begin) => `_${begin}`).toUpperCase()}`;
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
        `Environment variable ${variable} names no configuration key (docs/configuration.md lists them)`,
      );
    found[key] = value;
  }
  return found;
}

function describe(issue: z.core.$ZodIssue): string {
  if (issue.code === 'unrecognized_keys')
    return `unknown key ${issue.keys.join(', ')} (docs/configuration.md lists them)`;
  return `${issue.path.join('.')}: ${issue.message}`;
}

const WILDCARDS = ['0.0.0.0', '::'];

function checkRelations(config: Config): void {
  const wrong = [
    [
      config.access === 'open' && !isLoopback(config.host),
      `host ${config.host} can be reached from other machines, and access is open: set access to "tokens" and create a first ` +
        'token with `cnapi token create admin --role admin --config FILE`, or set host to 127.0.0.1',
    ],
    [
      WILDCARDS.includes(config.host) && config.advertiseHost === undefined,
      `host ${config.host} means every address of this machine: set advertiseHost to the one that agents shall use`,
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
      config.legacyHeartbeatRecordMs * 2 > config.legacyHeartbeatLifetimeMs,
      'legacyHeartbeatRecordMs must be at most half of legacyHeartbeatLifetimeMs',
    ],
    [config.legacyGraceMs < 2 * config.checkMs, 'legacyGraceMs must be at least 2 × checkMs'],
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
