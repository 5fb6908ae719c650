/**
 * A real Postgres server for one test, on a free loopback port. It can be stopped, restarted,
 * frozen and crashed. A shell process, the keeper, starts it and takes orders on its stdin. When
 * this process ends for any reason, the keeper stops the server and deletes the data.
 *
 *     start ──▶ running ──stop()──▶ stopped ──start()──▶ running
 *     any ──close(), or this process ends──▶ gone
 */
import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import {
  chmodSync,
  chownSync,
  closeSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  renameSync,
  statfsSync,
} from 'node:fs';
import { createServer, type Socket } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { linkPostgres, postgresDirectory } from '../../tools/setup/postgres-links.mjs';

export interface TestPostgresOptions {
  /**
   * Folder of the data, kept at the end if given. Default: a new folder in the system's temporary
   * one.
   */
  dataDir?: string;
  /** Default: a free port. */
  port?: number;
  /** Default true: nothing is flushed to disk. */
  fast?: boolean;
}

export interface Identity {
  uid?: number;
  gid?: number;
}

/**
 * A server that has only just started ignores INT and QUIT, like a background process of a shell.
 * TERM ends it.
 */
const keeper = `
directory=$1; shift
while :; do
  "$@" & server=$!
  read -r order || order=end
  case $order in stop) signal=INT ;; *) signal=QUIT ;; esac
  kill -TERM $server 2>/dev/null; kill -$signal $server 2>/dev/null; kill -CONT $server 2>/dev/null; wait $server
  if [ "$order" = stop ]; then read -r order || order=end; fi
  if [ "$order" = end ]; then [ -z "$directory" ] || rm -rf "$directory"; exit 0; fi
done`;

const commonSettings = ['listen_addresses=127.0.0.1', 'unix_socket_directories=', 'max_connections=300', 'jit=off'];
const fastSettings = [
  'fsync=off',
  'full_page_writes=off',
  'synchronous_commit=off',
  'wal_level=minimal',
  'max_wal_senders=0',
  'shared_buffers=64MB',
];

/** Starts a server; retries on another port if the free port was taken meanwhile. */
export async function startTestPostgres(options: TestPostgresOptions = {}): Promise<TestPostgres> {
  for (let attempt = 1; ; attempt++) {
    const server = new TestPostgres(options, options.port ?? (await freePort()));
    try {
      await server.start();
      return server;
    } catch (error) {
      await server.close();
      if (attempt === 5 || options.port !== undefined) throw error;
    }
  }
}

export class TestPostgres {
  readonly url: string;
  readonly port: number;
  readonly dataDir: string;
  readonly #base: string | undefined;
  readonly #identity: Identity;
  readonly #settings: string[];
  readonly #logFile: string;
  #keeper: ChildProcess | undefined;
  #pid: number | undefined;

  constructor(options: TestPostgresOptions, port: number) {
    this.port = port;
    this.url = `postgres://cnapi@127.0.0.1:${port}/postgres`;
    this.#identity = unprivilegedIdentity();
    const parent = options.fast === false ? os.tmpdir() : fastFolder();
    this.#base = options.dataDir === undefined ? ownedTemporaryFolder(this.#identity, parent) : undefined;
    this.dataDir = options.dataDir ?? path.join(this.#base ?? '', 'data');
    this.#logFile = `${this.dataDir}.log`;
    this.#settings = options.fast === false ? commonSettings : [...commonSettings, ...fastSettings];
  }

  /** The postmaster's process id. */
  get pid(): number {
    if (this.#pid === undefined) throw new Error('the test Postgres is not running');
    return this.#pid;
  }

  async start(): Promise<void> {
    const programs = reachablePrograms(this.#identity);
    if (!existsSync(path.join(this.dataDir, 'PG_VERSION'))) this.#initialise(programs);
    if (this.#keeper === undefined) this.#keeper = this.#spawnKeeper(programs);
    else this.#order('start');
    this.#pid = await this.#ready();
  }

  /** Stops the server in order (clients are disconnected); the data stays for `start()`. */
  async stop(): Promise<void> {
    if (this.#pid === undefined) return;
    this.#order('stop');
    await this.#gone();
  }

  async restart(): Promise<void> {
    await this.stop();
    await this.start();
  }

  /**
   * Acts like a machine that lost power: no shutdown, no message to clients. `start()` recovers.
   */
  async crash(): Promise<void> {
    const backends = this.#backends();
    for (const pid of [this.pid, ...backends]) signal(pid, 'SIGKILL');
    this.#order('stop');
    await this.#gone();
  }

  /** Stops the server's processes with SIGSTOP: connections stay open and nothing answers. */
  freeze(): void {
    signal(this.pid, 'SIGSTOP');
    for (const pid of this.#backends()) signal(pid, 'SIGSTOP');
  }

  thaw(): void {
    for (const pid of this.#backends()) signal(pid, 'SIGCONT');
    signal(this.pid, 'SIGCONT');
  }

  /** Ends the server and deletes its data, unless the folder was given. */
  async close(): Promise<void> {
    const keeper = this.#keeper;
    if (keeper === undefined) return;
    this.#keeper = undefined;
    this.#pid = undefined;
    keeper.ref();
    await new Promise((resolve) => {
      if (keeper.exitCode !== null || keeper.signalCode !== null) return resolve(undefined);
      keeper.once('exit', resolve);
      keeper.stdin?.end();
    });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #initialise(programs: string): void {
    mkdirSync(this.dataDir, { recursive: true, mode: 0o700 });
    if (this.#identity.uid !== undefined) chownSync(this.dataDir, this.#identity.uid, this.#identity.gid ?? 0);
    const flags = [
      '--no-sync',
      '--auth=trust',
      '--username=cnapi',
      '--encoding=UTF8',
      '--locale=C',
      '--no-instructions',
    ];
    execFileSync(path.join(programs, 'initdb'), [`--pgdata=${this.dataDir}`, ...flags], {
      ...this.#identity,
      cwd: '/',
      stdio: ['ignore', 'ignore', 'pipe'],
    });
  }

  #spawnKeeper(programs: string): ChildProcess {
    const settings = this.#settings.flatMap((setting) => ['-c', setting]);
    const command = [path.join(programs, 'postgres'), '-D', this.dataDir, '-p', String(this.port), ...settings];
    const log = openSync(this.#logFile, 'a', 0o644);
    const child = spawn('sh', ['-c', keeper, 'keeper', this.#base ?? '', ...command], {
      ...this.#identity,
      cwd: '/',
      detached: true,
      stdio: ['pipe', log, log],
    });
    closeSync(log);
    child.stdin?.on('error', () => undefined);
    // Neither keeps this process alive. When it ends, the keeper's stdin closes.
    child.unref();
    (child.stdin as Socket | null)?.unref();
    return child;
  }

  #order(order: 'stop' | 'start'): void {
    this.#keeper?.stdin?.write(`${order}\n`);
  }

  async #ready(): Promise<number> {
    const logStart = existsSync(this.#logFile) ? readFileSync(this.#logFile, 'utf8').length : 0;
    for (const deadline = Date.now() + 60_000; Date.now() < deadline; await sleep(20)) {
      const lines = readLines(path.join(this.dataDir, 'postmaster.pid'));
      const pid = Number(lines[0]);
      // A crashed server leaves this file behind.
      if (lines[7]?.trim() === 'ready' && isAlive(pid)) return pid;
      const said = readFileSync(this.#logFile, 'utf8').slice(logStart);
      if (/FATAL: .*(could not create|lock file|bind|data directory)/.test(said)) break;
    }
    throw new Error(`the test Postgres did not start: ${readFileSync(this.#logFile, 'utf8').slice(-2_000)}`);
  }

  async #gone(): Promise<void> {
    const pid = this.pid;
    for (const deadline = Date.now() + 60_000; isAlive(pid); await sleep(20)) {
      if (Date.now() > deadline) throw new Error(`the test Postgres (pid ${pid}) does not stop`);
    }
    this.#pid = undefined;
  }

  #backends(): number[] {
    const children = readFileSync(`/proc/${this.pid}/task/${this.pid}/children`, 'utf8');
    return children.trim().split(' ').filter(Boolean).map(Number);
  }
}

/**
 * Postgres refuses to run as root. It then runs as the user `postgres`, which is created if
 * missing.
 */
export function unprivilegedIdentity(): Identity {
  if (process.getuid?.() !== 0) return {};
  if (spawnSync('id', ['-u', 'postgres']).status !== 0) {
    spawnSync('groupadd', ['--system', '--force', 'postgres']);
    execFileSync('useradd', ['--system', '--gid', 'postgres', '--no-create-home', 'postgres']);
  }
  const ask = (flag: string) => Number(execFileSync('id', [flag, 'postgres'], { encoding: 'utf8' }));
  return { uid: ask('-u'), gid: ask('-g') };
}

export function ownedTemporaryFolder({ uid, gid }: Identity, parent: string = os.tmpdir()): string {
  const folder = mkdtempSync(path.join(parent, 'cnapi-test-postgres-'));
  if (uid !== undefined) chownSync(folder, uid, gid ?? 0);
  return folder;
}

const MEMORY_FOLDER = '/dev/shm';
/**
 * Databases of some 10 MB, as many as tests run at a time, and the log of changes: at most 1 GB.
 */
const MEMORY_FOLDER_BYTES = 3 * 1024 ** 3;

/**
 * A folder in memory if there is room. To copy a test database takes 25 ms of the processor there,
 * and 400 ms on a disk of a virtual machine.
 */
function fastFolder(): string {
  if (!existsSync(MEMORY_FOLDER)) return os.tmpdir();
  const { bavail, bsize } = statfsSync(MEMORY_FOLDER);
  return bavail * bsize >= MEMORY_FOLDER_BYTES ? MEMORY_FOLDER : os.tmpdir();
}

/**
 * The folder of the programs; copied to the temporary folder if that user cannot read the checkout.
 */
function reachablePrograms(identity: Identity): string {
  const installed = postgresDirectory(import.meta.url);
  linkPostgres(installed);
  const runs = (folder: string) => {
    const options = { ...identity, cwd: '/', stdio: 'ignore' as const };
    return spawnSync(path.join(folder, 'bin', 'postgres'), ['--version'], options).status === 0;
  };
  if (runs(installed)) return path.join(installed, 'bin');
  const hash = createHash('sha256')
    .update(readFileSync(path.join(installed, '..', 'package.json')))
    .digest('hex')
    .slice(0, 12);
  const copy = path.join(os.tmpdir(), `cnapi-postgres-${process.getuid?.() ?? 'user'}-${hash}`);
  if (!runs(copy)) copyWhole(installed, copy);
  return path.join(copy, 'bin');
}

function copyWhole(from: string, to: string): void {
  const partial = `${to}.${randomBytes(4).toString('hex')}`;
  cpSync(from, partial, { recursive: true, verbatimSymlinks: true });
  chmodSync(partial, 0o755);
  try {
    renameSync(partial, to);
  } catch (error) {
    if (!existsSync(path.join(to, 'bin', 'postgres'))) throw error;
  }
}

function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const address = server.address();
      server.close(() => resolve(typeof address === 'object' && address !== null ? address.port : 0));
    });
  });
}

function readLines(file: string): string[] {
  return existsSync(file) ? readFileSync(file, 'utf8').split('\n') : [];
}

function isAlive(pid: number): boolean {
  return signal(pid, 0);
}

function signal(pid: number, name: NodeJS.Signals | 0): boolean {
  try {
    return process.kill(pid, name);
  } catch {
    return false;
  }
}
