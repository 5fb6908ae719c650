/**
 * Provides the Redis for the tests: REDIS_URL, otherwise a redis-server or valkey-server on the
 * PATH, otherwise (as root on Debian or Ubuntu) the distribution's package. Without any, the tests
 * that need Redis are skipped, unless CNAPI_TEST_NO_SKIP=1 forbids it.
 */
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { findRedisProgram } from '../start/redis.ts';

export interface RedisProvision {
  available: boolean;
  /** One line for people. */
  said: string;
}

export async function provideRedis(): Promise<RedisProvision> {
  const found = existingRedis();
  if (found !== undefined) return { available: true, said: `Redis: ${found}` };
  const installed = mayInstall() && install() ? existingRedis() : undefined;
  if (installed !== undefined) {
    return { available: true, said: `Redis: ${installed}, just installed from the distribution's package` };
  }
  return { available: false, said: 'Redis: none (no REDIS_URL, no redis-server or valkey-server on the PATH)' };
}

function existingRedis(): string | undefined {
  if (process.env.REDIS_URL !== undefined) return 'the one that REDIS_URL names';
  return findRedisProgram();
}

function mayInstall(): boolean {
  return (
    process.getuid?.() === 0 && existsSync('/etc/debian_version') && spawnSync('apt-get', ['--version']).status === 0
  );
}

/** The tests start the server themselves, so installing the package must not start one. */
function install(): boolean {
  console.log('Redis: there is none on the PATH; installing the package redis-server (apt-get)');
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive', RUNLEVEL: '1' };
  const run = (...args: string[]) =>
    spawnSync('apt-get', ['-qq', ...args], { env, stdio: ['ignore', 'ignore', 'inherit'] }).status === 0;
  const arguments_ = ['install', '-y', '--no-install-recommends', 'redis-server'];
  return run(...arguments_) || (run('update') && run(...arguments_));
}
