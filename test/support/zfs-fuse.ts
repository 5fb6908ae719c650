/**
 * A real ZFS for tests, by zfs-fuse, on a file. Its daemon keeps its socket, its cache and its
 * mounts at fixed places, so it has a mount namespace of its own where those are empty, and what
 * the test gives its agent as `zfs` and `zpool` enters that namespace. With the daemon everything
 * is gone.
 */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, rm, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { Test } from 'tap';
import { lacks, programFile } from './debian-programs.ts';
import { until } from './until.ts';

export interface ZfsFuse {
  /** Belongs to this test alone. */
  directory: string;
  /** Files that run the programs. */
  programs: { zfs: string; zpool: string };
  /** Runs one of the programs, and resolves with its output. */
  run(program: 'zfs' | 'zpool', ...args: string[]): Promise<string>;
  /** Runs a script where the file systems are mounted, and resolves with its output. */
  inside(script: string): Promise<string>;
}

const POOL_BYTES = 128 * 1024 * 1024;
const MAX_ARC_MIB = '16';
/** Runs in its own mount namespace: its mounts are invisible outside and end with it. */
const DAEMON = `mount --make-rprivate / && mount -t tmpfs none /run && mkdir -p /run/zfs /run/lock/zfs /var/lib/zfs &&
mount -t tmpfs none /var/lib/zfs && exec "$0" --no-daemon --no-kstat-mount --max-arc-size ${MAX_ARC_MIB}`;

/** Why ZFS cannot be tested here; false if it can. */
export function lacksZfs(): string | false {
  if (process.env.CNAPI_TEST_NO_SKIP === '1') return false;
  if (process.geteuid?.() !== 0) return 'zfs-fuse needs root';
  if (!existsSync('/dev/fuse')) return 'no /dev/fuse here';
  return lacks('zfs-fuse', 'zfs', 'zpool', 'setpriv', 'unshare', 'nsenter');
}

/**
 * With a pool `tank`, of which nothing is mounted: with zfs-fuse, a file system is busy for a
 * moment after it was unmounted, so that its destroy fails, which unmounts it.
 */
export async function startZfsFuse(t: Test): Promise<ZfsFuse> {
  const directory = await mkdtemp(join(tmpdir(), 'cnapi-test-zfs-'));
  t.teardown(() => rm(directory, { recursive: true, force: true }));
  // Killed by the kernel if this process is killed.
  const args = ['--pdeathsig', 'KILL', programFile('unshare'), '-m', 'sh', '-c', DAEMON, programFile('zfs-fuse')];
  const daemon = spawn(programFile('setpriv'), args, { stdio: ['ignore', 'ignore', 'pipe'] });
  const exit = once(daemon, 'exit');
  let said = '';
  daemon.stderr.on('data', (chunk) => {
    said += chunk;
  });
  t.teardown(async () => {
    daemon.kill('SIGKILL');
    await exit;
  });
  const enter = [programFile('nsenter'), '-m', '-t', String(daemon.pid)];
  const programs = { zfs: join(directory, 'bin/zfs'), zpool: join(directory, 'bin/zpool') };
  await mkdir(join(directory, 'bin'));
  for (const name of ['zfs', 'zpool'] as const) {
    const script = `#!/bin/sh\nexec ${enter.join(' ')} ${programFile(name)} "$@"\n`;
    await writeFile(programs[name], script, { mode: 0o755 });
  }
  const output = async (file: string, given: string[]) => (await promisify(execFile)(file, given)).stdout;
  const run: ZfsFuse['run'] = (program, ...given) => output(programs[program], given);
  await until(
    async () => daemon.exitCode === null && (await run('zpool', 'list').catch(() => '')).includes('no pools'),
    'zfs-fuse answers',
  ).catch((cause: unknown) => {
    throw new Error(`zfs-fuse does not answer; it said ${said}`, { cause });
  });
  const disk = join(directory, 'disk');
  await writeFile(disk, '');
  await truncate(disk, POOL_BYTES);
  await run('zpool', 'create', '-m', 'none', 'tank', disk);
  return { directory, programs, run, inside: (script) => output('nsenter', [...enter.slice(1), 'sh', '-c', script]) };
}
