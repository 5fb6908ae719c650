/** `sleep {timeout: milliseconds}`: reports progress as it goes. */
import { z } from 'zod';
import { defineTask, pause } from '../../runner/task-definition.ts';

const STEPS = 10;

export const sleep = defineTask({
  lane: 'parallel',
  params: z.object({ timeout: z.coerce.number().min(0).max(86_400_000) }),
  async run({ timeout }, context) {
    for (let done = 1; done <= STEPS; done++) {
      await pause(timeout / STEPS, context);
      if (timeout >= 1000) context.progress((100 * done) / STEPS);
    }
    return {};
  },
});
