/** The deadlines of tasks. Pure. */
import { milliseconds } from '../../platform/setting-rules.ts';

export const taskSettings = {
  taskStartByMs: milliseconds
    .default(30_000)
    .describe(
      'A task that no agent has accepted after this time ends as `failure` with `NotTaken`. Time in which the database was unreachable or the server was full does not count',
    ),
  taskResendMs: milliseconds
    .default(5000)
    .describe('A task that the agent has not accepted after this time is sent again'),
  taskOverdueMs: milliseconds
    .default(60_000)
    .describe('When a task has no end this long after its timeout, the instance ends it'),
};
