/** The program `cnapi`, run as people and scripts run it. */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { Test } from 'tap';
import { until } from '../support/until.ts';

export const CNAPI = path.resolve(import.meta.dirname, '../../tools/cnapi');
const MAIN = path.resolve(import.meta.dirname, '../../lib/cli/main.ts');

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

  run(...args: string[]): Promise<Ran> {
    return this.start(args).ended;
  }

  /** The JSON that it printed. Throws unless it ended with 0. */
  async json<Value>(...args: string[]): Promise<Value> {
    const { code, stdout, stderr } = await this.run(...args, '--json');
    if (code !== 0) throw new Error(`cnapi ${args.join(' ')} ended with ${code}: ${stderr}`);
    return JSON.parse(stdout) as Value;
  }

  /**
   * `wrapper`: start through tools/cnapi. `under`: a program, with its arguments, that starts it.
   * `program`: another program instead.
   */
  start(
    args: readonly string[],
    { env = {}, input = '', wrapper = false, under = [] as string[], program: own = '' } = {},
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
    child.stdin.end(input);
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
