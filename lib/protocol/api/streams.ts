/** Work of an agent whose input and output is a stream of its caller (docs/design/streams.md). */
import { z } from 'zod';
import { MAX_COMMAND_ARGS, MAX_TASK_TIMEOUT_MS } from '../limits.ts';
import { logResume, streamName, terminal } from '../streams/stream.ts';
import { contracts } from './contract/contract.ts';
import { boolean, integer, members, serverUuid, textArray, uuid } from './contract/rules.ts';
import { commandParams, refusals, taskId, taskIdExample, underTicket } from './server-tasks.ts';

const { env, secret_params } = commandParams;
const ofStream = {
  ...serverUuid,
  ...underTicket,
  stream: streamName.describe('What GET /servers/:server_uuid/stream has sent first'),
  timeout_ms: integer('timeout_ms', 1, MAX_TASK_TIMEOUT_MS)
    .optional()
    .describe('How long it may run: a day at most, and when absent'),
};
const MAX_PORT = 65_535;
const ofVm = { ...ofStream, vm_uuid: uuid().describe('Uuid of the VM') };
const inTerminal = members(terminal.strict())
  .optional()
  .describe('Runs it in a terminal of this type and size; without it, with pipes');
const started = {
  preconditions: ['server', 'running'],
  responses: { 202: { description: 'Accepted', schema: taskId, example: taskIdExample }, ...refusals },
} as const;

export const streamContracts = contracts({
  StartExec: {
    ...started,
    method: 'POST',
    path: '/servers/:server_uuid/exec',
    summary: 'Runs a command, as a task, whose input and output is a stream that the caller has opened',
    tag: 'tasks',
    origin: 'own',
    params: z.object({ ...ofStream, ...commandParams, terminal: inTerminal }),
  },
  StartConnection: {
    ...started,
    method: 'POST',
    path: '/servers/:server_uuid/connect',
    summary:
      'Connects a stream that the caller has opened, as a task, to a TCP port of the loopback address of a server',
    tag: 'tasks',
    origin: 'own',
    params: z.object({
      ...ofStream,
      port: integer('port', 1, MAX_PORT).describe('The agent connects to 127.0.0.1 and this port'),
    }),
  },
  StartVmExec: {
    ...started,
    method: 'POST',
    path: '/servers/:server_uuid/vms/:vm_uuid/exec',
    summary: 'Runs a program in a VM, as a task, whose input and output is a stream that the caller has opened',
    tag: 'vms',
    origin: 'own',
    params: z.object({
      ...ofVm,
      args: textArray(MAX_COMMAND_ARGS)
        .refine((words) => words.length > 0, 'value is empty')
        .describe("The program and its arguments; it runs as the user of the VM's own program, in its directory"),
      env,
      secret_params,
      terminal: inTerminal,
    }),
  },
  StartVmConsole: {
    ...started,
    method: 'POST',
    path: '/servers/:server_uuid/vms/:vm_uuid/console',
    summary:
      'Attaches a stream that the caller has opened, as a task, to the terminal in which the program of a VM runs',
    tag: 'vms',
    origin: 'own',
    params: z.object({
      ...ofVm,
      read_only: boolean().optional().describe('Only reads; otherwise the caller writes instead of the one before'),
      terminal: members(terminal.strict())
        .optional()
        .describe('The size of the terminal from now on; its type is that of the VM'),
    }),
  },
  StartVmConnection: {
    ...started,
    method: 'POST',
    path: '/servers/:server_uuid/vms/:vm_uuid/connect',
    summary: 'Connects a stream that the caller has opened, as a task, to a TCP port of the loopback address of a VM',
    tag: 'vms',
    origin: 'own',
    params: z.object({
      ...ofVm,
      port: integer('port', 1, MAX_PORT).describe(
        'The agent connects to 127.0.0.1 and this port, in the network of the VM',
      ),
    }),
  },
  StartVmLogs: {
    ...started,
    method: 'POST',
    path: '/servers/:server_uuid/vms/:vm_uuid/logs',
    summary: 'Writes what the program of a VM has printed, as a task, to a stream that the caller has opened',
    tag: 'vms',
    origin: 'own',
    params: z.object({
      ...ofVm,
      follow: boolean().optional().describe('Continues until the VM stops or is deleted'),
      tail: integer('tail', 0, Number.MAX_SAFE_INTEGER).optional().describe('Only this number of lines at the end'),
      resume: members(logResume.strict())
        .optional()
        .describe(
          'Continues a log that was broken off: the last position on channel 5, and the bytes that came after it',
        ),
    }),
  },
});
