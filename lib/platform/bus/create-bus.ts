/**
 * Chooses the bus of an instance from its configuration: Redis if a URL is configured, otherwise
 * LISTEN/NOTIFY of the database.
 */

import type { Clock } from '../clock.ts';
import type { Logger } from '../log.ts';
import type { DatabaseHosts } from '../postgres/hosts.ts';
import type { Random } from '../random.ts';
import type { Bus } from './bus.ts';
import { createPostgresBus } from './postgres-bus.ts';
import { createRedisBus } from './redis-bus.ts';

interface BusDeps {
  redisUrl?: string | undefined;
  databaseUrl?: string | DatabaseHosts | undefined;
  /**
   * Prefix of each channel name on the server. Default `cnapi:`; set it when several control planes
   * share a server.
   */
  prefix?: string | undefined;
  clock: Clock;
  random: Random;
  log: Logger;
}

/** @throws TypeError when neither URL is given. */
export function createBus({ redisUrl, databaseUrl, prefix = 'cnapi:', ...deps }: BusDeps): Bus & AsyncDisposable {
  if (redisUrl !== undefined) return createRedisBus({ url: redisUrl, prefix, ...deps });
  if (databaseUrl !== undefined) return createPostgresBus({ url: databaseUrl, prefix, ...deps });
  throw new TypeError('A bus needs redisUrl or databaseUrl');
}
