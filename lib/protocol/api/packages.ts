/**
 * Triton's routes for the agents of one server: packages that its agent installs or removes, by
 * tasks.
 */
import { z } from 'zod';
import { contracts, errorResponse } from './contract/contract.ts';
import { array, boolean, boundedText, serverUuid } from './contract/rules.ts';
import { refusals, taskId, taskIdExample, underTicket } from './server-tasks.ts';

const accepted = { description: 'The task was accepted', schema: taskId, example: taskIdExample };

/** The limits of the agent (lib/agent/packages). */
const MAX_NAME_CHARS = 64;
const MAX_SOURCE_CHARS = 4_000;

export const packageContracts = contracts({
  InstallAgent: {
    method: 'POST',
    path: '/servers/:server_uuid/install-agent',
    summary:
      'Installs a signed package of an agent: the task `agent_install`. An agent of this project must trust a key and allow the source; for its own package the task ends when the new version has come up or was rolled back. On a server that speaks only Ur it installs the agent',
    tag: 'servers',
    origin: 'reference',
    lenient: true,
    params: z.object({
      ...serverUuid,
      ...underTicket,
      image_uuid: boundedText(MAX_NAME_CHARS).optional().describe('For agents of Triton: an image of IMGAPI'),
      package_name: boundedText(MAX_NAME_CHARS).optional().describe('The name that the package must have'),
      package_file: boundedText(MAX_SOURCE_CHARS)
        .optional()
        .describe('Where the package is: http:, https: or file:, or the path of a file of the server'),
      downgrade: boolean().optional().describe('true: also a version older than the installed one'),
      retry: boolean().optional().describe('true: also a version of the agent that was rolled back'),
    }),
    preconditions: ['server', 'running'],
    responses: { 200: accepted, ...refusals },
  },
  UninstallAgents: {
    method: 'POST',
    path: '/servers/:server_uuid/uninstall-agents',
    summary: 'Removes packages of other agents from the server: the task `agents_uninstall`',
    tag: 'servers',
    origin: 'reference',
    lenient: true,
    params: z.object({
      ...serverUuid,
      ...underTicket,
      agents: array().describe('Names of packages'),
    }),
    preconditions: ['server', 'running'],
    responses: {
      200: accepted,
      ...refusals,
      412: errorResponse('PreconditionFailed: the agent of Triton is older than 2.8.0', 'PreconditionFailed'),
    },
  },
});
