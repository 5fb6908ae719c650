/**
 * Chooses the bus of an instance from its configuration: Redis if a URL is configured, otherwise
 * LISTEN/NOTIFY of the database.
 */

import type { Logger } from '../log.ts';
import type { DatabaseHosts } from '../postgres/hosts.ts';
import type { Random } from '../random.ts';
import type { Clock } from '../time/clock.ts';
import type { Bus } from './bus.ts';
import { createPostgresBus } from './postgres-bus.ts';
import { createRedisBus } from './redis-bus.ts';

interface BusDeps {
  redisUrl?: string | undefined;
  databaseUrl?: string | DatabaseHosts | undefined;
  clock: Clock;
  random: Random;
  log: Logger;
}

/** @throws TypeError when neither URL is given. */
export function createBus({ redisUrl, databaseUrl, ...deps }: BusDeps): Bus & AsyncDisposable {
  if (redisUrl !== undefined) return createRedisBus({ url: redisUrl, ...deps });
  if (databaseUrl !== undefined) return createPostgresBus({ url: databaseUrl, ...deps });
  throw new TypeError('A bus needs redisUrl or databaseUrl');
}
