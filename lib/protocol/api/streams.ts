/** Work of an agent whose input and output is a stream of its caller (docs/design/streams.md). */
import { z } from 'zod';
import { MAX_TASK_TIMEOUT_MS } from '../limits.ts';
import { streamName, terminal } from '../streams/stream.ts';
import { contracts } from './contract/contract.ts';
import { integer, members, serverUuid } from './contract/rules.ts';
import { commandParams, refusals, taskId, taskIdExample, underTicket } from './server-tasks.ts';

export const streamContracts = contracts({
  StartExec: {
    method: 'POST',
    path: '/servers/:server_uuid/exec',
    summary: 'Runs a command, as a task, whose input and output is a stream that the caller has opened',
    tag: 'tasks',
    origin: 'own',
    params: z.object({
      ...serverUuid,
      ...underTicket,
      stream: streamName.describe('What GET /servers/:server_uuid/stream has sent first'),
      ...commandParams,
      terminal: members(terminal.strict())
        .optional()
        .describe('Runs it in a terminal of this type and size; without it, with pipes'),
      timeout_ms: integer('timeout_ms', 1, MAX_TASK_TIMEOUT_MS)
        .optional()
        .describe('How long it may run: a day at most, and when absent'),
    }),
    preconditions: ['server', 'running'],
    responses: { 202: { description: 'Accepted', schema: taskId, example: taskIdExample }, ...refusals },
  },
});
