/** The program that uses the client (`caller.ts`), as seen by a test. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { createInterface } from 'node:readline';
import type { Test } from 'tap';
import { guard } from '../../tools/processes/guardian.ts';
import { installPackages } from '../support/own-packages.ts';
import type { Call, Callback } from './caller.ts';

export class OldClient {
  /** Output that is not an answer: Node's warnings, a stack trace. */
  readonly complaints: string[] = [];
  readonly #child: ChildProcess;
  readonly #pending = new Map<number, PromiseWithResolvers<Callback>>();
  #calls = 0;

  constructor(child: ChildProcess) {
    this.#child = child;
    for (const stream of [child.stdout, child.stderr])
      if (stream) createInterface({ input: stream }).on('line', (line) => this.#take(line));
    child.once('close', () => {
      for (const { reject } of this.#pending.values()) reject(new Error(`it ended: ${this.complaints.join('\n')}`));
    });
  }

  /** Installs the client if necessary. Ends with the test, or before it with the test's process. */
  static async start(t: Test): Promise<OldClient> {
    await installPackages(import.meta.dirname);
    const file = path.join(import.meta.dirname, 'caller.ts');
    const child = spawn(process.execPath, [file], { stdio: ['pipe', 'pipe', 'pipe'] });
    guard(child);
    const ended = once(child, 'exit');
    t.teardown(async () => {
      child.stdin?.end();
      await ended;
    });
    return new OldClient(child);
  }

  /** What `new CNAPI({url})[method](...args, callback)` passed to its callback. */
  call<Result = unknown>(url: string, method: string, ...args: unknown[]): Promise<Callback<Result>> {
    return this.#send({ url, method, args });
  }

  /** The names of all methods of the client. */
  async methods(): Promise<string[]> {
    return (await this.#send<string[]>({ url: 'http://127.0.0.1', args: [] })).result;
  }

  #send<Result>(call: Omit<Call, 'id'>): Promise<Callback<Result>> {
    const id = ++this.#calls;
    this.#child.stdin?.write(`${JSON.stringify({ id, ...call })}\n`);
    const pending = Promise.withResolvers<Callback>();
    this.#pending.set(id, pending);
    return pending.promise as Promise<Callback<Result>>;
  }

  #take(line: string): void {
    const said = line.startsWith('{"id":') ? (JSON.parse(line) as Callback) : undefined;
    if (said === undefined) this.complaints.push(line);
    else this.#pending.get(said.id)?.resolve(said);
  }
}
