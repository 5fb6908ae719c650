/**
 * Triton's routes by which a server is set up, changed or reset: each creates a workflow job, or
 * its task.
 */
import { z } from 'zod';
import { hostName } from '../host-name.ts';
import { NIC_ACTIONS, nicChanges } from '../nics.ts';
import { MAX_SECRET_POINTERS } from '../secret-params.ts';
import { DISK_LAYOUTS, MAX_SETUP_SCRIPT_CHARS } from '../server-setup.ts';
import { contracts, errorResponse } from './contract/contract.ts';
import { errorBody } from './contract/errors.ts';
import { booleanText, boundedText, number, serverUuid } from './contract/rules.ts';
import { refusals, taskId, taskIdExample, underTicket } from './server-tasks.ts';
import { jobCreated, jobOrigin, serverBusy } from './workflows.ts';

const nics = nicChanges().describe('The NICs by their MAC addresses, with NIC tags: names of the networks they reach');

const MAX_DISKS = 1_000;
const disks = (minimum = 0) =>
  number()
    .refine((value) => value >= minimum, 'value was not greater than or equal to zero')
    .refine((value) => value <= MAX_DISKS, `value is greater than ${MAX_DISKS}`)
    .meta({ minimum, maximum: MAX_DISKS })
    .optional();
const REFUSED_DISKS = 'Agents of this project lay out no disks: the job fails unless it is absent, 0 or false';

const wrongType = { 500: errorResponse('A parameter has the wrong type, as in Triton', 'InvalidParameters') };

export const serverSetupContracts = contracts({
  SetupServer: {
    method: 'PUT',
    path: '/servers/:server_uuid/setup',
    summary: 'Sets the server up by a job',
    tag: 'workflows',
    origin: 'reference',
    params: z.object({
      ...serverUuid,
      hostname: hostName('value was not a string').optional().describe('The name that the server is given'),
      postsetup_script: boundedText(MAX_SETUP_SCRIPT_CHARS)
        .min(1, 'value is empty')
        .optional()
        .describe('sh runs it, or the interpreter that its first line names'),
      nics: nics.optional(),
      disk_layout: boundedText(100)
        .optional()
        .describe(`${DISK_LAYOUTS.join(', ')}. ${REFUSED_DISKS}`),
      disk_exclude: boundedText(10_000).optional().describe(REFUSED_DISKS),
      disk_spares: disks().describe(REFUSED_DISKS),
      disk_width: disks().describe(REFUSED_DISKS),
      disk_cache: booleanText().optional().describe(REFUSED_DISKS),
      encryption_enabled: booleanText().optional().describe(REFUSED_DISKS),
      secret_params: z
        .unknown()
        .optional()
        .meta({ type: 'array', items: { type: 'string' }, maxItems: MAX_SECRET_POINTERS })
        .describe('JSON Pointers to what only the agent may see: `/postsetup_script`'),
    }),
    preconditions: ['server', 'running'],
    responses: {
      ...jobCreated,
      204: { description: 'The server is set up already; nothing is done' },
      ...serverBusy,
      409: errorResponse(
        `${serverBusy[409].description}; SetupNotAllowed: its agent says that it was started without --allow-setup, and a script or another name is given`,
        ...serverBusy[409].codes,
        'SetupNotAllowed',
      ),
      ...wrongType,
    },
  },
  FactoryResetServer: {
    method: 'PUT',
    path: '/servers/:server_uuid/factory-reset',
    summary: 'Resets the server by a job: to what it was before its set-up, by the program that its agent names',
    tag: 'workflows',
    origin: 'reference',
    params: z.object({ ...serverUuid, ...jobOrigin }),
    preconditions: ['server', 'running'],
    responses: {
      ...jobCreated,
      ...serverBusy,
      409: {
        description: `The server has VMs: a text, as in Triton. FactoryResetNotAllowed: its agent says that it was started without --factory-reset; ${serverBusy[409].description}`,
        schema: z.union([z.string(), errorBody]),
        example: 'Server may not be reset because it has 2 vms',
      },
      ...wrongType,
    },
  },
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
      500: errorResponse('The server is not set up, or a parameter has the wrong type', 'InternalError'),
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
    responses: { 200: { description: 'Accepted', schema: taskId, example: taskIdExample }, ...refusals, ...wrongType },
  },
});
