/** Runs `npm start` on ports and in a data directory of a test's own. */
import { type ChildProcess, spawn } from 'node:child_process';
import { chmodSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { isAlive } from '../../../tools/setup/processes.mjs';
import type { Ready } from '../../../tools/start/banner.ts';
import type { Ending } from '../../../tools/start/end-processes.ts';
import { isTcpFree, isUdpFree } from '../../../tools/start/ports.ts';
import { HANG_MS } from '../../support/patience.ts';
import { until } from '../../support/until.ts';

const program = path.resolve(import.meta.dirname, '../../../tools/start/main.ts');
const cli = path.resolve(import.meta.dirname, '../../../lib/cli/main.ts');

/** Where these tests announce what they start, instead of the user's own directory. */
export const configHome = mkdtempSync(path.join(os.tmpdir(), 'cnapi-config-'));
process.once('exit', () => rmSync(configHome, { recursive: true, force: true }));
const ownEnv: NodeJS.ProcessEnv = { ...process.env, XDG_CONFIG_HOME: configHome };
for (const name of ['CNAPI_TOKEN', 'CNAPI_TOKEN_FILE', 'CNAPI_URL', 'CNAPI_DNS']) delete ownEnv[name];

export interface Teardown {
  teardown(work: () => unknown): void;
}

export interface Ended {
  code: number | null;
  stdout: string;
  stderr: string;
}

/** A data directory that any user can reach, removed at the end. */
export function dataDirectory(t: Teardown): string {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'cnapi-start-'));
  chmodSync(folder, 0o755);
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  return path.join(folder, 'data');
}

/** The first of `count` neighbouring ports that are free now. */
export async function freePorts(count: number): Promise<number> {
  for (;;) {
    const first = 20_000 + Math.floor(Math.random() * 12_000);
    const free = await Promise.all(
      Array.from({ length: count }, async (_, index) => (await isTcpFree(first + index)) && isUdpFree(first + index)),
    );
    if (free.every(Boolean)) return first;
  }
}

export class Start {
  readonly child: ChildProcess;
  readonly ended: Promise<Ended>;
  #stdout = '';
  #stderr = '';

  constructor(t: Teardown, args: readonly string[], env = ownEnv, user: { uid?: number; gid?: number } = {}) {
    this.child = spawn(process.execPath, [program, ...args], { ...user, env, stdio: ['ignore', 'pipe', 'pipe'] });
    this.child.stdout?.on('data', (chunk) => {
      this.#stdout += chunk;
    });
    this.child.stderr?.on('data', (chunk) => {
      this.#stderr += chunk;
    });
    this.ended = new Promise((resolve) =>
      this.child.once('close', (code) => resolve({ code, stdout: this.#stdout, stderr: this.#stderr })),
    );
    t.teardown(async () => {
      this.child.kill('SIGTERM');
      await this.ended;
    });
  }

  get stderr(): string {
    return this.#stderr;
  }

  /** The parsed ready line. */
  async ready(): Promise<Ready> {
    const line = await until(
      () => {
        if (this.child.exitCode !== null) throw new Error(`it ended instead: ${this.#stderr}`);
        return this.#stdout.split('\n').find((each) => each.startsWith('{"ready":true'));
      },
      'the ready line',
      2 * HANG_MS,
    );
    return JSON.parse(line) as Ready;
  }
}

/** The authorization header for its instances. */
export function authorizationOf({ token_file }: Ready): Record<string, string> {
  return { authorization: `Bearer ${readFileSync(token_file ?? '', 'utf8').trim()}` };
}

/** The CLI, run as the same user. */
export async function cnapi(args: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<Ended> {
  const child = spawn(process.execPath, [cli, ...args], {
    env: { ...ownEnv, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let stdout = '';
  let stderr = '';
  child.stdout.on('data', (chunk) => {
    stdout += chunk;
  });
  child.stderr.on('data', (chunk) => {
    stderr += chunk;
  });
  return new Promise((resolve) => child.once('close', (code) => resolve({ code, stdout, stderr })));
}

/** All live processes of the supervisor of this data directory. */
export function processesOf(data: string): Ending[] {
  return (JSON.parse(readFileSync(path.join(data, 'config', 'processes.json'), 'utf8')) as Ending[]).filter(isAlive);
}

/** The names of the processes that are still alive after waiting this long. */
export async function untilGone(processes: readonly Ending[], withinMs: number): Promise<string[]> {
  const deadline = Date.now() + withinMs;
  while (processes.some(isAlive) && Date.now() < deadline) await sleep(50);
  return processes.filter(isAlive).map(({ name }) => name);
}
