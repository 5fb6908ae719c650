/**
 * Real Redis for tests. A private server runs on a free loopback port, keeps nothing on disk, and
 * can be killed, restarted, frozen and thawed. A shell process, the keeper, ends it when this
 * process ends for any reason.
 *
 *     start ──▶ running ──stop()──▶ stopped ──restart()──▶ running
 *     any ──this process ends──▶ gone
 *
 * If no server is available, a test is skipped with the reason: `t.test(name, { skip: noRedisServer
 * }, …)`. With CNAPI_TEST_NO_SKIP=1 (continuous integration) it runs and fails instead.
 */
import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { connect, createServer } from 'node:net';
import path from 'node:path';
import type { Readable, Writable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { isExecutable } from '../../tools/processes/executable.ts';
import type { Teardown } from './postgres.ts';

const program = findProgram(['redis-server', 'valkey-server']);
const givenUrl = process.env.REDIS_URL;
const maySkip = process.env.CNAPI_TEST_NO_SKIP !== '1';

/**
 * Why tests that need their own server, to freeze or kill it, are skipped; false when they can run.
 */
export const noRedisServer: string | false =
  program === undefined && maySkip ? 'no redis-server or valkey-server on the PATH' : false;

/** Whether a private server can be started. */
export const hasRedisServer = program !== undefined;

/** Why tests that need any Redis are skipped; false when they can run. */
export const noRedis: string | false = givenUrl === undefined ? noRedisServer : false;

let shared: Promise<TestRedis> | undefined;

/**
 * A Redis for ordinary tests: the one that REDIS_URL names, else one that this process starts once
 * and ends. Other tests may use it at the same time, so use `uniquePrefix()`.
 */
export async function sharedRedisUrl(): Promise<string> {
  if (givenUrl !== undefined) return givenUrl;
  shared ??= startTestRedis();
  return (await shared).url;
}

/** A prefix for channels that no other test uses. */
export function uniquePrefix(): string {
  return `cnapi-test-${randomBytes(6).toString('hex')}:`;
}

/** Starts a private server; retries on another port if the free port was taken meanwhile. */
export async function startTestRedis(t?: Teardown): Promise<TestRedis> {
  for (let attempt = 1; ; attempt++) {
    const server = new TestRedis(await freePort());
    try {
      await server.restart();
      t?.teardown(() => server.stop());
      return server;
    } catch (error) {
      await server.stop();
      if (attempt === 5 || program === undefined) throw error;
    }
  }
}

const keeper = '"$@" </dev/null >/dev/null 2>&1 & echo $!; cat >/dev/null; kill -KILL $! 2>/dev/null; wait';

export class TestRedis {
  readonly port: number;
  readonly url: string;
  #keeper: ChildProcessByStdio<Writable, Readable, null> | undefined;
  #pid: number | undefined;

  constructor(port: number) {
    this.port = port;
    this.url = `redis://127.0.0.1:${port}`;
  }

  get pid(): number {
    if (this.#pid === undefined) throw new Error('the test Redis is not running');
    return this.#pid;
  }

  /** Kills the server like `kill -9`. Its port is not reserved. Repeating it is harmless. */
  async stop(): Promise<void> {
    const keeper = this.#keeper;
    this.#keeper = undefined;
    this.#pid = undefined;
    if (keeper === undefined || keeper.exitCode !== null) return;
    keeper.ref();
    const exited = new Promise((resolve) => keeper.once('exit', resolve));
    keeper.stdin.end();
    await exited;
  }

  /** Kills the server if it runs, and starts it on the same port. */
  async restart(): Promise<void> {
    await this.stop();
    const keeper = this.#spawn();
    this.#keeper = keeper;
    const [line] = (await keeper.stdout.take(1).toArray()) as Buffer[];
    this.#pid = Number(line);
    await this.#answers();
    keeper.unref();
    (keeper.stdin as Writable & { unref?(): void }).unref?.();
  }

  /** Suspends the server: connections stay open and nothing answers. */
  freeze(): void {
    process.kill(this.pid, 'SIGSTOP');
  }

  thaw(): void {
    process.kill(this.pid, 'SIGCONT');
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  #spawn(): ChildProcessByStdio<Writable, Readable, null> {
    if (program === undefined) throw new Error('no redis-server or valkey-server on the PATH');
    const flags = { port: String(this.port), bind: '127.0.0.1', save: '', appendonly: 'no', dir: '/tmp' };
    const settings = Object.entries(flags).flatMap(([name, value]) => [`--${name}`, value]);
    const child = spawn('sh', ['-c', keeper, 'keeper', program, ...settings], {
      detached: true,
      stdio: ['pipe', 'pipe', 'ignore'],
    });
    child.stdin.on('error', () => undefined);
    return child;
  }

  async #answers(): Promise<void> {
    for (let tries = 0; tries < 200; tries++) {
      if (!isRunning(this.pid)) break;
      if (await ping(this.port)) return;
      await sleep(25);
    }
    throw new Error(`${program} did not answer on port ${this.port}`);
  }
}

function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

function ping(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => socket.write('PING\r\n'));
    const answer = (well: boolean) => {
      socket.destroy();
      resolve(well);
    };
    socket.once('data', (bytes) => answer(bytes.toString().startsWith('+PONG')));
    socket.once('error', () => answer(false));
    socket.setTimeout(2_000, () => answer(false));
  });
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

function findProgram(names: readonly string[]): string | undefined {
  for (const name of names) {
    for (const directory of (process.env.PATH ?? '').split(path.delimiter)) {
      const candidate = path.join(directory, name);
      if (isExecutable(candidate)) return candidate;
    }
  }
  return undefined;
}
