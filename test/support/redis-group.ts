/**
 * Two Redis servers of the distribution, master and replica, under three Sentinels. The servers
 * have one password, the Sentinels another. Set up as in docs/failover.md.
 */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { Redis } from 'ioredis';
import type { Program } from '../../tools/processes/program.ts';
import { Quarters } from './debian-programs.ts';
import { freePort } from './fleet-harness.ts';
import type { Teardown } from './postgres.ts';
import { until } from './until.ts';

interface Server {
  port: number;
  program: Program;
}

const PASSWORD = 'redis-secret';
const SENTINEL_PASSWORD = 'sentinel-secret';
const MASTER = 'mymaster';

export async function startRedisGroup(t: Teardown): Promise<RedisGroup> {
  const quarters = new Quarters();
  t.teardown(() => quarters.clear());
  const master = await startServer(quarters, 'redis-1', redisLines());
  const replica = await startServer(quarters, 'redis-2', [...redisLines(), `replicaof 127.0.0.1 ${master.port}`]);
  const sentinels: Server[] = [];
  for (const n of [1, 2, 3]) sentinels.push(await startServer(quarters, `sentinel-${n}`, sentinelLines(master.port)));
  const group = new RedisGroup([master, replica], sentinels);
  await group.untilWatched();
  return group;
}

export class RedisGroup {
  readonly url: string;
  readonly servers: readonly Server[];
  readonly sentinels: readonly Server[];

  constructor(servers: readonly Server[], sentinels: readonly Server[]) {
    this.servers = servers;
    this.sentinels = sentinels;
    const hosts = sentinels.map(({ port }) => `127.0.0.1:${port}`);
    this.url = `redis+sentinel://:${PASSWORD}@${hosts.join(',')}/${MASTER}?sentinelPassword=${SENTINEL_PASSWORD}`;
  }

  /** Resolves when each Sentinel knows the replica and the other two, so that it can fail over. */
  async untilWatched(): Promise<void> {
    await until(async () => {
      const views = await Promise.all(
        this.sentinels.map(({ port }) => ask(port, SENTINEL_PASSWORD, 'SENTINEL', 'MASTER', MASTER)),
      );
      return views.every((view) => {
        const fields = view as string[];
        const field = (name: string) => fields[fields.indexOf(name) + 1];
        return field('num-slaves') === '1' && field('num-other-sentinels') === '2' && field('flags') === 'master';
      });
    }, 'the Sentinels to know all servers');
  }

  /** The server that the Sentinels report as master. */
  async master(): Promise<Server> {
    const port = this.sentinels.find(({ program }) => program.isRunning)?.port ?? 0;
    const named = (await ask(port, SENTINEL_PASSWORD, 'SENTINEL', 'GET-MASTER-ADDR-BY-NAME', MASTER)) as string[];
    const found = this.servers.find((server) => String(server.port) === named[1]);
    if (found === undefined) throw new Error(`the Sentinels name ${named}`);
    return found;
  }

  /** The number of the server's connections with that name. */
  async connections({ port }: Server, name: string): Promise<number> {
    const list = String(await ask(port, PASSWORD, 'CLIENT', 'LIST'));
    return list.split('\n').filter((line) => line.includes(`name=${name}`)).length;
  }
}

function redisLines(): string[] {
  return [
    `requirepass ${PASSWORD}`,
    `masterauth ${PASSWORD}`,
    'save ""',
    'appendonly no',
    'repl-diskless-sync-delay 0',
  ];
}

function sentinelLines(masterPort: number): string[] {
  return [
    `requirepass ${SENTINEL_PASSWORD}`,
    `sentinel sentinel-pass ${SENTINEL_PASSWORD}`,
    `sentinel monitor ${MASTER} 127.0.0.1 ${masterPort} 2`,
    `sentinel auth-pass ${MASTER} ${PASSWORD}`,
    `sentinel down-after-milliseconds ${MASTER} 1000`,
    `sentinel failover-timeout ${MASTER} 10000`,
  ];
}

/** The server owns its configuration file, because it rewrites it. */
async function startServer(quarters: Quarters, name: string, lines: readonly string[]): Promise<Server> {
  const port = await freePort();
  const file = path.join(quarters.folder, `${name}.conf`);
  const common = [`port ${port}`, 'bind 127.0.0.1', `dir ${quarters.folder}`];
  writeFileSync(file, [...common, ...lines, ''].join('\n'), { mode: 0o666 });
  quarters.owns(file);
  const isSentinel = name.startsWith('sentinel');
  const program = quarters.program(name, 'redis-server', [file, ...(isSentinel ? ['--sentinel'] : [])]);
  program.start();
  const password = isSentinel ? SENTINEL_PASSWORD : PASSWORD;
  await until(async () => {
    if (!program.isAlive) throw new Error(`${name} ended: ${program.log().at(-1)?.msg}`);
    return (await ask(port, password, 'PING').catch(() => undefined)) === 'PONG';
  }, `${name} to answer`);
  return { port, program };
}

async function ask(port: number, password: string, command: string, ...args: string[]): Promise<unknown> {
  const redis = new Redis({ host: '127.0.0.1', port, password, lazyConnect: true, retryStrategy: null });
  redis.on('error', () => undefined);
  try {
    await redis.connect();
    return await redis.call(command, ...args);
  } finally {
    redis.disconnect();
  }
}
