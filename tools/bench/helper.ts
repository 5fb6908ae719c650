/**
 * A Node process that the benchmark started and can ask questions: one of its own programs, or an
 * instance with the probe. A question to a process that has ended, or ends before it answers, fails
 * with the last lines of its log.
 */
import type { Serializable } from 'node:child_process';
import { systemClock as clock } from '../../lib/platform/time/clock.ts';
import { ownProgram, Program } from '../processes/program.ts';
import type { Answer } from './asked.ts';

export interface HelperPlan {
  name: string;
  /** Relative to the project's root. */
  file: string;
  args?: readonly string[];
  /** Arguments for Node itself. */
  nodeArgs?: readonly string[];
}

interface Asked {
  resolve(answer: unknown): void;
  reject(error: Error): void;
}

const READY_WITHIN_MS = 30_000;

export class Helper {
  readonly program: Program;
  readonly #asked = new Map<number, Asked>();
  readonly #ready = Promise.withResolvers<void>();
  #questions = 0;

  constructor({ name, file, args = [], nodeArgs = [] }: HelperPlan, logFile: string) {
    const command = ownProgram(file, args, nodeArgs);
    this.program = new Program({ name, command, logFile, onMessage: (message) => this.#onMessage(message) });
    this.#ready.promise.catch(() => undefined);
  }

  /** Resolves when it answers questions. */
  async start(): Promise<void> {
    this.program.start();
    this.program.onceEnded(() => this.#fail());
    const timer = clock.after(READY_WITHIN_MS, () =>
      this.#ready.reject(new Error(`${this.program.name} is not ready`)),
    );
    await this.#ready.promise.finally(() => timer.cancel());
  }

  async ask<Result>(question: string, params: object = {}): Promise<Result> {
    const id = ++this.#questions;
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    this.#asked.set(id, { resolve, reject });
    this.program.send({ id, question, params } as Serializable);
    return (await promise) as Result;
  }

  stop(): Promise<void> {
    return this.program.kill();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  #onMessage(message: unknown): void {
    if ((message as { ready?: boolean }).ready) return this.#ready.resolve();
    const answer = message as Answer;
    const asked = this.#asked.get(answer.id);
    this.#asked.delete(answer.id);
    if ('error' in answer) asked?.reject(new Error(`${this.program.name}: ${answer.error}`));
    else asked?.resolve(answer.answer);
  }

  #fail(): void {
    const words = this.program.log().slice(-3);
    const error = new Error(`${this.program.name} ended: ${words.map(({ msg }) => msg).join('; ')}`);
    this.#ready.reject(error);
    for (const { reject } of this.#asked.values()) reject(error);
    this.#asked.clear();
  }
}
