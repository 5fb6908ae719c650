/**
 * The other end of `Helper.ask`: a process of the benchmark that answers questions over its IPC
 * channel. Used by the programs of tools/bench/programs and, preloaded into instances, by the
 * probe.
 */
import type { Serializable } from 'node:child_process';

export type Answers = Record<string, (params: never) => unknown>;

export interface Question {
  id: number;
  question: string;
  params: unknown;
}

export type Answer = { id: number; answer: Serializable } | { id: number; error: string };

/** Announces that it is ready, and answers from then on. */
export function answerQuestions(answers: Answers): void {
  process.on('message', (message: Question) => void reply(answers, message));
  process.send?.({ ready: true });
}

async function reply(answers: Answers, { id, question, params }: Question): Promise<void> {
  try {
    const found = answers[question];
    if (found === undefined) throw new Error(`nobody answers ${question}`);
    const answer = ((await found(params as never)) ?? null) as Serializable;
    process.send?.({ id, answer });
  } catch (error) {
    process.send?.({ id, error: (error as Error).stack ?? String(error) });
  }
}
