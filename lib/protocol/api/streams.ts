/** Work of an agent whose input and output is a stream of its caller (docs/design/streams.md). */
import { z } from 'zod';
import { MAX_COMMAND_ARGS, MAX_TASK_TIMEOUT_MS } from '../limits.ts';
import { MAX_SECRET_POINTERS } from '../secret-params.ts';
import { streamName, terminal } from '../streams/stream.ts';
import { commandEnvironment } from './command-environment.ts';
import { contracts } from './contract/contract.ts';
import { integer, serverUuid, text, textArray } from './contract/rules.ts';
import { refusals, taskId, taskIdExample, underTicket } from './server-tasks.ts';

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
      script: text().min(1, 'value is empty').describe('sh runs it, or the interpreter that its first line names'),
      args: textArray(MAX_COMMAND_ARGS).optional(),
      env: commandEnvironment.optional(),
      secret_params: z
        .unknown()
        .optional()
        .meta({ type: 'array', items: { type: 'string' }, maxItems: MAX_SECRET_POINTERS })
        .describe('JSON Pointers to what only the agent may see: `/env/PASSWORD`'),
      terminal: terminal.optional().describe('Runs it in a terminal of this type and size; without it, with pipes'),
      timeout_ms: integer('timeout_ms', 1, MAX_TASK_TIMEOUT_MS)
        .optional()
        .describe('How long it may run: a day at most, and when absent'),
    }),
    preconditions: ['server', 'running'],
    responses: { 202: { description: 'Accepted', schema: taskId, example: taskIdExample }, ...refusals },
  },
});
