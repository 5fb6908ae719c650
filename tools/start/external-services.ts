/** Checks whether the user's database and Redis can be used, before anything is started. */
import { Redis } from 'ioredis';
import pg from 'pg';
import { messageOf } from '../../lib/platform/errors.ts';
import { Refusal } from './refusal.ts';

const limitMs = 5000;

/** @throws Refusal */
export async function checkDatabase(url: string): Promise<void> {
  const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: limitMs });
  client.on('error', () => undefined);
  try {
    await client.connect();
    await client.query('select 1');
  } catch (cause) {
    throw new Refusal(
      `the database of --database-url (${withoutSecret(url)}) cannot be used: ${reason(cause)}`,
      1,
      cause,
    );
  } finally {
    await client.end().catch(() => undefined);
  }
}

/** @throws Refusal */
export async function checkRedis(url: string): Promise<void> {
  const options = { lazyConnect: true, connectTimeout: limitMs, commandTimeout: limitMs, retryStrategy: () => null };
  const redis = new Redis(url, options);
  let lastError: unknown;
  redis.on('error', (error) => {
    lastError = error;
  });
  try {
    await redis.connect();
    await redis.ping();
  } catch (cause) {
    throw new Refusal(
      `the Redis of --redis-url (${withoutSecret(url)}) cannot be used: ${reason(lastError ?? cause)}`,
      1,
      cause,
    );
  } finally {
    redis.disconnect();
  }
}

/** Some network errors combine several errors and have no message of their own. */
function reason(error: unknown): string {
  return messageOf(error) || ((error as NodeJS.ErrnoException).code ?? 'no reason given');
}

function withoutSecret(url: string): string {
  return Object.assign(new URL(url), { password: '' }).href;
}
