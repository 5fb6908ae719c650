/**
 * The embedded Postgres: its cluster in DATA/postgres, created once, with a loopback port and a
 * random password that stay the same. As root it runs as an unprivileged user, with copies of its
 * programs if that user cannot run those of the checkout.
 */
import { execFile, spawnSync } from 'node:child_process';
import {
  chownSync,
  cpSync,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import pg from 'pg';
import { messageOf } from '../../lib/platform/errors.ts';
import { linkPostgres, postgresDirectory } from '../setup/postgres-links.mjs';
import type { Command } from './child.ts';
import { password, rememberedPort, rememberPort } from './persisted-settings.ts';
import { type Identity, postgresIdentity } from './place.ts';
import { freePort } from './ports.ts';
import { Refusal } from './refusal.ts';

const user = 'cnapi';
const database = 'cnapi';

export interface EmbeddedPostgres {
  url: string;
  port: number;
  cluster: string;
  /** The command that starts it; calling it tidies up what a crash left. */
  command: () => Command;
}

/**
 * Creates what is missing: programs that can be run, the cluster.
 * @throws Refusal or system errors
 */
export async function preparePostgres(
  data: string,
  maxConnections: number,
  say: (text: string) => void,
): Promise<EmbeddedPostgres> {
  const cluster = path.join(data, 'postgres');
  const identity = ownerOf(cluster) ?? postgresIdentity();
  const programs = runnablePrograms(identity, data, say);
  const secret = password(data, 'postgres');
  if (!existsSync(path.join(cluster, 'PG_VERSION'))) {
    say('creating the database');
    await createCluster({ identity, programs, cluster, secret });
  }
  const port = await freePort(rememberedPort(data, 'postgres'));
  rememberPort(data, 'postgres', port);
  const settings = ['listen_addresses=127.0.0.1', 'unix_socket_directories=', `max_connections=${maxConnections}`];
  const args = ['-D', cluster, '-p', String(port), ...settings.flatMap((setting) => ['-c', setting])];
  return {
    url: `postgres://${user}:${secret}@127.0.0.1:${port}/${database}`,
    port,
    cluster,
    command() {
      removeStalePid(cluster);
      return { file: path.join(programs, 'postgres'), args, ...identity, env: plainEnvironment() };
    },
  };
}

/** Whether the server of process `pid` accepts connections; creates the database if it does. */
export async function isPostgresReady(postgres: EmbeddedPostgres, pid: number | undefined): Promise<boolean> {
  const lines = readLines(path.join(postgres.cluster, 'postmaster.pid'));
  if (Number(lines[0]) !== pid || lines[7]?.trim() !== 'ready') return false;
  await createDatabase(postgres.url);
  return true;
}

/** The owner of the cluster if this process is root, because no other user may run it. */
function ownerOf(cluster: string): Identity | undefined {
  const stats = statSync(cluster, { throwIfNoEntry: false });
  if (process.getuid?.() !== 0 || stats === undefined || stats.uid === 0) return undefined;
  return { uid: stats.uid, gid: stats.gid };
}

/** Returns the folder of programs that `identity` can run. */
function runnablePrograms(identity: Identity, data: string, say: (text: string) => void): string {
  const installed = installedPostgres();
  if (canRun(installed, identity)) return path.join(installed, 'bin');
  const { version } = JSON.parse(readFileSync(path.join(installed, '..', 'package.json'), 'utf8')) as {
    version: string;
  };
  const copy = path.join(data, `postgres-${version}`);
  if (!canRun(copy, identity)) {
    say(`copying the Postgres programs to ${copy}, where their user can reach them`);
    copyPrograms(installed, copy);
  }
  if (canRun(copy, identity)) return path.join(copy, 'bin');
  throw new Refusal(
    `Postgres does not run here: ${complaint(copy, identity)}; give a database with --database-url URL`,
  );
}

function installedPostgres(): string {
  try {
    const installed = postgresDirectory(import.meta.url);
    linkPostgres(installed);
    return installed;
  } catch (cause) {
    const reason = `there is no embedded Postgres for ${process.platform}-${process.arch}: ${messageOf(cause)}`;
    throw new Refusal(`${reason}; give a database with --database-url URL`, 1, cause);
  }
}

function canRun(folder: string, identity: Identity): boolean {
  return spawnSync(path.join(folder, 'bin', 'initdb'), ['--version'], { ...identity, cwd: '/' }).status === 0;
}

function complaint(folder: string, identity: Identity): string {
  const { stderr, error } = spawnSync(path.join(folder, 'bin', 'initdb'), ['--version'], {
    ...identity,
    cwd: '/',
    encoding: 'utf8',
  });
  return error?.message ?? stderr.trim();
}

function copyPrograms(from: string, to: string): void {
  rmSync(to, { recursive: true, force: true });
  cpSync(from, `${to}.new`, { recursive: true, verbatimSymlinks: true });
  spawnSync('chmod', ['-R', 'a+rX', `${to}.new`]);
  renameSync(`${to}.new`, to);
}

interface ClusterPlan {
  identity: Identity;
  programs: string;
  cluster: string;
  secret: string;
}

/** Creates the cluster in a temporary folder and moves it into place when it is complete. */
async function createCluster({ identity, programs, cluster, secret }: ClusterPlan): Promise<void> {
  const draft = `${cluster}.new`;
  rmSync(draft, { recursive: true, force: true });
  mkdirSync(draft, { mode: 0o700 });
  const passwordFile = path.join(draft, 'password');
  writeFileSync(passwordFile, `${secret}\n`, { mode: 0o600 });
  const target = path.join(draft, 'cluster');
  if (identity.uid !== undefined) {
    for (const each of [draft, passwordFile]) chownSync(each, identity.uid, identity.gid ?? 0);
  }
  const args = [
    `--pgdata=${target}`,
    `--username=${user}`,
    `--pwfile=${passwordFile}`,
    '--auth=scram-sha-256',
    '--encoding=UTF8',
    '--locale=C',
    '--no-instructions',
  ];
  const options = { ...identity, cwd: '/', env: plainEnvironment() };
  await promisify(execFile)(path.join(programs, 'initdb'), args, options);
  renameSync(target, cluster);
  rmSync(draft, { recursive: true, force: true });
}

async function createDatabase(url: string): Promise<void> {
  const admin = Object.assign(new URL(url), { pathname: '/postgres' }).href;
  const client = new pg.Client({ connectionString: admin, connectionTimeoutMillis: 10_000 });
  client.on('error', () => undefined);
  await client.connect();
  try {
    const { rowCount } = await client.query('select 1 from pg_database where datname = $1', [database]);
    if (rowCount === 0) await client.query(`create database ${database}`);
  } finally {
    await client.end();
  }
}

/**
 * After a crash the pid in the lock file may now belong to another program, and Postgres would
 * refuse to start.
 */
function removeStalePid(cluster: string): void {
  const file = path.join(cluster, 'postmaster.pid');
  const pid = Number(readLines(file)[0]);
  if (pid > 0 && !isPostmasterOf(pid, cluster)) rmSync(file, { force: true });
}

function isPostmasterOf(pid: number, cluster: string): boolean {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').includes(cluster);
  } catch {
    // Without /proc this is unknown: Postgres decides.
    return !existsSync('/proc/self');
  }
}

function readLines(file: string): string[] {
  try {
    return readFileSync(file, 'utf8').split('\n');
  } catch {
    return [];
  }
}

/** None of our variables: PG… variables would change the server's behaviour. */
function plainEnvironment(): NodeJS.ProcessEnv {
  return { PATH: process.env.PATH ?? '/usr/bin:/bin', LC_ALL: 'C', TZ: 'UTC' };
}
