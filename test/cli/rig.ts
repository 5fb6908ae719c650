/** The program `cnapi`, run as people and scripts run it. */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Writable } from 'node:stream';
import type { Test } from 'tap';
import { runCli } from '../../lib/cli/run.ts';
import { until } from '../support/until.ts';

export const CNAPI = path.resolve(import.meta.dirname, '../../tools/cnapi');
const MAIN = path.resolve(import.meta.dirname, '../../lib/cli/main.ts');

/**
 * `lock` passes its streams to a child; the others take paths relative to the working directory.
 */
const NEEDS_PROCESS: ReadonlySet<string> = new Set(['lock', '--file', '--public-key', '--script']);

export interface Ran {
  code: number | null;
  stdout: string;
  stderr: string;
}

export interface Running {
  child: ChildProcess;
  ended: Promise<Ran>;
  stdout(): string;
  stderr(): string;
  /** Resolves when stdout or stderr holds the text. */
  says(text: string | RegExp): Promise<void>;
}

export class Cli {
  /** An empty home, so that no token is found. */
  readonly home: string;
  readonly #t: Test;
  readonly #env: Record<string, string>;

  constructor(t: Test, urls: readonly string[]) {
    this.#t = t;
    this.home = mkdtempSync(path.join(tmpdir(), 'cnapi-cli-'));
    t.teardown(() => rmSync(this.home, { recursive: true, force: true }));
    const compiled = path.resolve(import.meta.dirname, '../../.runtime/compile-cache');
    const env = { PATH: process.env.PATH ?? '', HOME: this.home, NODE_COMPILE_CACHE: compiled };
    this.#env = { ...env, CNAPI_URL: urls.join(',') };
  }

  /**
   * Runs a command, in this process if that makes no difference: a process of its own costs several
   * times as much.
   */
  async run(...args: string[]): Promise<Ran> {
    if (args.some((arg) => NEEDS_PROCESS.has(arg))) return this.start(args).ended;
    const said = { stdout: '', stderr: '' };
    const collect = (name: keyof typeof said) =>
      new Writable({
        decodeStrings: false,
        write: (piece, _encoding, done) => {
          said[name] += piece;
          done();
        },
      });
    const streams = { stdin: undefined, stdout: collect('stdout'), stderr: collect('stderr') };
    const code = await runCli(args, { env: { ...this.#env }, streams });
    return { code, ...said };
  }

  /** The JSON that it printed. Throws unless it ended with 0. */
  async json<Value>(...args: string[]): Promise<Value> {
    const { code, stdout, stderr } = await this.run(...args, '--json');
    if (code !== 0) throw new Error(`cnapi ${args.join(' ')} ended with ${code}: ${stderr}`);
    return JSON.parse(stdout) as Value;
  }

  /**
   * `keepsInput`: what is written to `child.stdin` later is input, too. `wrapper`: start through
   * tools/cnapi. `under`: a program, with its arguments, that starts it. `program`: another program
   * instead.
   */
  start(
    args: readonly string[],
    { env = {}, input = '', keepsInput = false, wrapper = false, under = [] as string[], program: own = '' } = {},
  ): Running {
    const usual = wrapper ? [CNAPI] : [process.execPath, '--disable-warning=ExperimentalWarning', MAIN];
    const program = own === '' ? usual : [own];
    const [file = '', ...rest] = [...under, ...program, ...args];
    const child = spawn(file, rest, { env: { ...this.#env, ...env }, cwd: this.home, stdio: 'pipe' });
    const said = { stdout: '', stderr: '' };
    for (const name of ['stdout', 'stderr'] as const)
      child[name].setEncoding('utf8').on('data', (piece) => {
        said[name] += piece;
      });
    child.stdin.on('error', () => undefined);
    if (keepsInput) child.stdin.write(input);
    else child.stdin.end(input);
    this.#t.teardown(() => child.kill('SIGKILL'));
    const ended = new Promise<Ran>((resolve) => child.once('close', (code) => resolve({ code, ...said })));
    return {
      child,
      ended,
      stdout: () => said.stdout,
      stderr: () => said.stderr,
      says: async (text) =>
        void (await until(() => has(said.stdout + said.stderr, text), `${text} in ${JSON.stringify(said)}`)),
    };
  }
}

export const has = (said: string, text: string | RegExp): boolean =>
  typeof text === 'string' ? said.includes(text) : text.test(said);

/** The lines of JSON in a text. */
export function records<Value = Record<string, unknown>>(text: string): Value[] {
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Value);
}
