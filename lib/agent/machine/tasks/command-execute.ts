/**
 * `command_execute {script, args?, env?, timeout?: ms, paced?}` → `{exitCode, signal, stdout,
 * stderr}`. A command that exits with a non-zero code was executed: `complete`. A command that had
 * to be killed is a `failure` that carries its output. A `paced` command writes no faster than its
 * live output is sent.
 */
import { z } from 'zod';
import { MAX_COMMAND_ARGS } from '../../../protocol/limits.ts';
import { defineTask } from '../../runner/task-definition.ts';
import { TaskFailure } from '../../task-failure.ts';
import { environment, MAX_WORD_CHARS, withoutNul } from '../environment.ts';

const params = z.object({
  script: withoutNul.min(1, 'is empty').max(1024 * 1024),
  args: z.array(withoutNul.max(MAX_WORD_CHARS)).max(MAX_COMMAND_ARGS).default([]),
  env: environment.default({}),
  timeout: z.coerce.number().int().min(1).max(86_400_000).optional(),
  paced: z.boolean().default(false),
});

export const commandExecute = defineTask({
  lane: 'parallel',
  startsItself: true,
  params,
  async run({ script, args, env, timeout, paced }, context) {
    const { id, clock, machine, begin, output } = context;
    const own = new AbortController();
    const timer = timeout === undefined ? undefined : clock.after(timeout, () => own.abort(late(timeout)));
    const signal = AbortSignal.any([context.signal, own.signal]);
    try {
      const { killed, ...result } = await machine.execute(
        { script, args, env, isPaced: paced },
        { id, signal, begin, output },
      );
      if (!killed) return result;
      throw new TaskFailure(signal.reason.code, signal.reason.message, { result });
    } finally {
      timer?.cancel();
    }
  },
});

const late = (ms: number) =>
  new TaskFailure('TaskTimeout', `The command did not end within ${ms / 1000} s and was killed`);
