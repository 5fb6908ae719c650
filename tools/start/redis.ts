/**
 * A private Redis for the bus, if the machine has the program: on loopback, with a password, with
 * nothing stored on disk.
 */
import { chownSync, mkdirSync } from 'node:fs';
import path from 'node:path';
import { isExecutable } from '../processes/executable.ts';
import type { Command } from './child.ts';
import { password, rememberedPort, rememberPort, writePrivate } from './persisted-settings.ts';
import { postgresIdentity } from './place.ts';
import { freePort } from './ports.ts';

export interface PrivateRedis {
  url: string;
  port: number;
  /** `redis-server` or `valkey-server`. */
  program: string;
  command: () => Command;
}

/** Returns the first `redis-server` on the PATH, otherwise the first `valkey-server`. */
export function findRedisProgram(searchPath = process.env.PATH ?? ''): string | undefined {
  const folders = searchPath.split(path.delimiter).filter((folder) => path.isAbsolute(folder));
  const candidates = ['redis-server', 'valkey-server'].flatMap((name) =>
    folders.map((folder) => path.join(folder, name)),
  );
  return candidates.find(isExecutable);
}

/** Writes its configuration. As root it runs as the same user as Postgres. @throws system errors */
export async function prepareRedis(data: string, file: string): Promise<PrivateRedis> {
  const identity = postgresIdentity();
  const secret = password(data, 'redis');
  const port = await freePort(rememberedPort(data, 'redis'));
  rememberPort(data, 'redis', port);
  const folder = path.join(data, 'redis');
  const config = path.join(folder, 'redis.conf');
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  writePrivate(config, configuration(port, secret, folder));
  if (identity.uid !== undefined) for (const each of [folder, config]) chownSync(each, identity.uid, identity.gid ?? 0);
  return {
    url: `redis://:${secret}@127.0.0.1:${port}`,
    port,
    program: path.basename(file),
    command: () => ({ file, args: [config], ...identity }),
  };
}

function configuration(port: number, secret: string, folder: string): string {
  const settings = [
    'bind 127.0.0.1',
    `port ${port}`,
    `requirepass ${secret}`,
    'save ""',
    'appendonly no',
    'daemonize no',
    'supervised no',
    `dir ${JSON.stringify(folder)}`,
  ];
  return `${settings.join('\n')}\n`;
}
