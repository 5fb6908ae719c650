/**
 * The name server as a separate process: reads the live instances from their table and answers for
 * the zone. `npm start` runs it next to the instances; `node lib/name-server/main.ts --config FILE`
 * runs it anywhere (JSON: databaseUrl, host, port, datacenter, domain, logLevel). While the
 * database is unreachable it keeps its last answer.
 */
import { readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { z } from 'zod';
import { NameServer } from '../platform/dns/name-server.ts';
import { createLogger, LOG_LEVELS } from '../platform/log.ts';
import { parsed } from '../platform/parsed-text.ts';
import { hostUrls } from '../platform/postgres/database-url.ts';
import { PostgresDatabase } from '../platform/postgres/pool.ts';
import { systemRandom } from '../platform/random.ts';
import { systemClock } from '../platform/time/clock.ts';
import { LivingInstances } from './living-instances.ts';

const configuration = z.strictObject({
  databaseUrl: parsed(z.string(), hostUrls),
  host: z.string().default('127.0.0.1'),
  port: z.int().min(0).max(65_535).default(8053),
  datacenter: z.string().default('local'),
  domain: z.string().default('cnapi.internal'),
  logLevel: z.enum(LOG_LEVELS).default('info'),
});

const { values } = parseArgs({ options: { config: { type: 'string' } } });
if (values.config === undefined) throw new Error('usage: name-server --config FILE');
const config = configuration.parse(JSON.parse(readFileSync(values.config, 'utf8')));

const log = createLogger('cnapi-name-server', config.logLevel);
const database = new PostgresDatabase({
  url: config.databaseUrl,
  applicationName: 'cnapi-name-server',
  log,
  clock: systemClock,
  maxConnections: 1,
  statementTimeoutMs: 3000,
});
const living = new LivingInstances({ database, clock: systemClock, log });
const nameServer = new NameServer({
  host: config.host,
  port: config.port,
  zone: config,
  instances: () => living.instances,
  clock: systemClock,
  random: systemRandom,
  log,
});

const starting = nameServer.start();
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => void stop());
await starting;
living.start();

async function stop(): Promise<void> {
  await starting;
  await nameServer.stop();
  await living.stop();
  await database.stop();
}
