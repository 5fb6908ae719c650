/**
 * An instance's configuration: a JSON file with camelCase keys, overridden by environment variables
 * `CNAPI_…` (`databaseUrl` is `CNAPI_DATABASE_URL`). Parsed once, frozen, passed down in slices. An
 * unknown key is refused by name. Longer than 400 lines: a setting is described where it is parsed.
 */

import { readFileSync } from 'node:fs';
import { z } from 'zod';
import { parseRedisUrl } from '../platform/bus/redis-url.ts';
import { CnapiError, type ErrorFields } from '../platform/errors.ts';
import { LOG_LEVELS } from '../platform/log.ts';
import { parseBrokerAddress } from '../platform/network/broker-address.ts';
import { isLoopback, reasonNotANetwork } from '../platform/network/networks.ts';
import { parsed } from '../platform/parsed-text.ts';
import { hostUrls } from '../platform/postgres/database-url.ts';
import type { TrustedNetwork } from './access/trusted-networks.ts';
import { annealerSettings } from './annealer/settings.ts';
import { placementSettings } from './placement/settings.ts';
import { urSettings } from './ur/settings.ts';

/** Environment values are strings. Only a string of digits is read as a number. */
const whole = (minimum: number, maximum: number) =>
  z.preprocess(
    (value) => (typeof value === 'string' && /^\d{1,15}$/.test(value) ? Number(value) : value),
    z.number().int().min(minimum).max(maximum),
  );
const port = whole(0, 65_535);
const flag = z.preprocess((value) => (value === 'true' ? true : value === 'false' ? false : value), z.boolean());
const ms = whole(1, 86_400_000);

const networkRole = z.enum(['reader', 'operator', 'agent'], 'is not reader, operator or agent');
const networkRoles = z.union([networkRole.transform((role) => [role]), z.array(networkRole).min(1)]);
/**
 * Written in a file as `{"10.0.0.0/24": "operator", "10.0.1.0/24": ["reader", "agent"]}`, and in
 * the environment as `10.0.0.0/24=operator,10.0.1.0/24=reader+agent`.
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
      'Name of this instance, a uuid. Give each instance its own, and keep it; without it each start creates a new one. In the environment `CNAPI_UUID`',
    ),
  host: z
    .string()
    .min(1)
    .max(255)
    .default('127.0.0.1')
    .describe('Address on which it listens; only loopback while `access` is `open`'),
  port: port.default(8080).describe('Port for both REST and the agent link; 0 means any free port'),
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

  access: z
    .enum(['open', 'tokens'], 'is neither open nor tokens')
    .default('open')
    .describe(
      '`tokens`: callers and agents need a token. `open`: nobody needs one, and the instance listens on loopback only ([access](access.md))',
    ),
  trustedNetworks: trustedNetworks
    .default([])
    .describe(
      'Callers and agents that connect from these networks without a token have this role: `{"10.0.0.0/24": "reader"}`, in the environment `10.0.0.0/24=reader`',
    ),
  agentNetworks: networks
    .default([])
    .describe(
      'Networks in which legacy agents may be sent tasks: `["10.0.0.0/24"]`, in the environment `10.0.0.0/24,10.0.1.0/24`. Also allowed are the address from which an agent posts and the networks with the role agent in `trustedNetworks`',
    ),
  requestsPerSecond: whole(0, 1_000_000)
    .default(500)
    .describe('Requests per second of one address (with IPv6: one /64), with `tokens`; 0 means no limit'),
  connectionsPerSource: whole(0, 100_000)
    .default(500)
    .describe('Connections of one address, with `tokens`; 0 means no limit'),
  handshakesPerSecond: whole(0, 100_000)
    .default(200)
    .describe('TLS handshakes per second of one address (with IPv6: one /64), with `tokens`; 0 means no limit'),
  answerMemoryMiB: whole(1, 65_536)
    .default(128)
    .describe('Memory for answers that are being read from the database or sent; beyond it 503 `AnswerMemoryFull`'),
  answerMemoryPerCallerMiB: whole(0, 65_536)
    .default(32)
    .describe(
      'The part of that memory that one token or signer (or one address without) may use, with `tokens`; beyond it 429 `AnswerShareFull`; 0 means no limit',
    ),
  eventStreamsPerCaller: whole(0, 100_000)
    .default(100)
    .describe(
      'Event streams of one token or signer (or one address without) on this instance, with `tokens`; 0 means no limit',
    ),
  waitsPerCaller: whole(0, 100_000)
    .default(1000)
    .describe(
      'Waits for tasks and tickets of one token or signer (or one address without) on this instance, with `tokens`; 0 means no limit',
    ),
  logLinesPerSource: whole(0, 1_000_000)
    .default(200)
    .describe(
      'Log lines per second about what one address does: its requests, frames and sessions; one line counts the others; 0 means no limit',
    ),
  newServersPerHour: whole(0, 1_000_000)
    .default(20_000)
    .describe(
      'New servers per hour that one agent token without `--server` (or one address without a token) may create on this instance, with `tokens`; 0 means no limit',
    ),
  failedAuthenticationsPerMinute: whole(0, 1_000_000)
    .default(30)
    .describe('Failed authentications per minute of one address, with `tokens`; 0 means no limit'),

  heartbeatMs: ms.default(1000).describe('Time between two heartbeats of an agent'),
  silenceMs: ms
    .default(2000)
    .describe(
      'After this time without a frame from an agent, its instance counts it as silent; at least two heartbeats',
    ),
  serverSilenceMs: ms
    .default(3000)
    .describe(
      'After this time without a frame from its instance, an agent looks for another one; at least two heartbeats',
    ),
  checkMs: ms
    .default(250)
    .describe('The period of the tick that counts silence, leases and grace periods; at most a quarter of `silenceMs`'),
  beatMs: ms.default(1000).describe('Time between two beats of an instance, which it writes to the database'),
  leaseMs: ms
    .default(5000)
    .describe('An instance that does not beat for this time counts as dead; at least three beats'),
  ownerlessGraceMs: ms
    .default(5000)
    .describe(
      'How long the agents of a dead instance may take to connect to another one before their servers become `unknown`; longer while agents wait that were told to return later, by two minutes and `reconnectMaxMs` at most',
    ),
  startGraceMs: ms
    .default(18_000)
    .describe(
      'For this time after its start, a stall or a database outage, an instance marks no server `unknown` that it never held; at least `reconnectMaxMs`',
    ),
  slowPollMs: ms.default(5000).describe('How often an instance reads what it may have missed on the bus'),
  slowPollNoBusMs: ms.default(1000).describe('The same while the bus does not work'),
  reconnectMaxMs: ms.default(8000).describe('Longest pause of an agent between two attempts to connect'),
  drainAgentsMs: ms
    .default(30_000)
    .describe('How long agents may take to move to other instances, from the start of a drain'),
  drainWaitsMs: ms
    .default(60_000)
    .describe(
      'When remaining waits are answered, from the start of a drain; at least `drainAgentsMs`. The process ends at the latest 15 s later: if you raise this, raise `TimeoutStopSec`, `timeout_seconds` or `--stop-timeout` (90 s) too',
    ),
  balanceQuietMs: ms
    .default(30_000)
    .describe(
      'For this time after an instance started, left or began to drain, agents are not balanced; nor are they while an instance has not beaten for half of `leaseMs`',
    ),
  legacyHeartbeatLifetimeMs: ms
    .default(11_000)
    .describe('How long a heartbeat of a legacy agent (one every 5 s) proves that its server is up'),
  legacyHeartbeatRecordMs: ms
    .default(4000)
    .describe(
      'How often an instance records which legacy agents posted heartbeats to it; at most half of `legacyHeartbeatLifetimeMs`',
    ),
  legacyGraceMs: ms
    .default(1000)
    .describe(
      'A server of a legacy agent becomes `unknown` when no instance received a heartbeat for the sum of these three times; at least two `checkMs`',
    ),
  taskStartByMs: ms
    .default(30_000)
    .describe(
      'A task that no agent has accepted after this time ends as `failure` with `NotTaken`. Time in which the database was unreachable or the server was full does not count',
    ),
  taskResendMs: ms.default(5000).describe('A task that the agent has not accepted after this time is sent again'),
  taskOverdueMs: ms
    .default(60_000)
    .describe('When a task has no end this long after its timeout, the instance ends it'),
  ...placementSettings,
  ...annealerSettings,
  ...urSettings,
});

export type Config = Readonly<z.output<typeof schema>>;

/** Networks in which agents may be called, wherever they connected from. */
export function agentNetworksOf({ agentNetworks, trustedNetworks }: Pick<Config, 'agentNetworks' | 'trustedNetworks'>) {
  const trusted = trustedNetworks.filter(({ roles }) => roles.includes('agent')).map(({ text }) => text);
  return [...agentNetworks, ...trusted];
}

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
