/**
 * `nop {sleep?: seconds, error?: text}`: waits, then completes or fails with that error. Checks
 * that an agent works.
 */
import { z } from 'zod';
import { defineTask, pause } from '../../runner/task-definition.ts';
import { TaskFailure } from '../../task-failure.ts';

export const nop = defineTask({
  lane: 'parallel',
  params: z.object({
    sleep: z.coerce.number().min(0).max(86_400).optional(),
    error: z.string().max(4000).optional(),
  }),
  async run({ sleep, error }, context) {
    if (sleep) await pause(sleep * 1000, context);
    if (error) throw new TaskFailure('NopError', error);
    return {};
  },
});
