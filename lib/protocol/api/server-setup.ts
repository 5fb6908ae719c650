/** Triton's routes by which a server is set up, changed or reset: each creates a workflow job, or its task. */
import { z } from 'zod';
import { NIC_ACTIONS, nicChanges } from '../nics.ts';
import { contracts, errorResponse } from './contract/contract.ts';
import { serverUuid } from './contract/rules.ts';
import { refusals, taskId, taskIdExample, underTicket } from './server-tasks.ts';
import { jobCreated, jobOrigin, serverBusy } from './workflows.ts';

const nics = nicChanges().describe('The NICs by their MAC addresses, with NIC tags: names of the networks they reach');

export const serverSetupContracts = contracts({
  UpdateServerNics: {
    method: 'PUT',
    path: '/servers/:server_uuid/nics',
    summary: 'Changes the NIC tags of the server by a job',
    tag: 'workflows',
    origin: 'reference',
    lenient: true,
    params: z.object({
      ...serverUuid,
      ...jobOrigin,
      action: z
        .enum(NIC_ACTIONS, "action must be 'update', 'replace', or 'delete'")
        .describe(
          '`update` adds the tags to those of the NIC, `replace` gives it exactly these, `delete` removes them',
        ),
      nics,
    }),
    preconditions: ['server', 'running'],
    responses: {
      ...jobCreated,
      ...serverBusy,
      500: errorResponse('The server is not set up', 'InternalError'),
    },
  },
  UpdateServerNicsTask: {
    method: 'POST',
    path: '/servers/:server_uuid/nics/update',
    summary: 'The task of such a job alone: `server_update_nics`',
    tag: 'workflows',
    origin: 'reference',
    lenient: true,
    params: z.object({
      ...serverUuid,
      ...underTicket,
      action: z.enum(NIC_ACTIONS).optional().describe('As in the job; `replace` when absent'),
      nics,
    }),
    preconditions: ['server', 'running'],
    responses: { 200: { description: 'Accepted', schema: taskId, example: taskIdExample }, ...refusals },
  },
});
