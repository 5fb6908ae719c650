/** The creation of a VM on a server that the control plane chooses: a workflow job. */
import { z } from 'zod';
import { answer, contracts, errorResponse } from './contract/contract.ts';
import { array, boundedText, object, text, uuid } from './contract/rules.ts';

const JOB = 'b5e7c0de-1a2b-4c3d-8e4f-5a6b7c8d9e0f';
const VM = 'e2a6c0de-7b1d-4f6e-9a44-6f1f2b3c4d5e';

export const provisioningContracts = contracts({
  ProvisionVm: {
    method: 'POST',
    path: '/vms',
    summary: 'Creates a VM by a job, on the server that placement chooses. A request that is repeated gets its job',
    tag: 'vms',
    origin: 'own',
    requiredRole: 'operator',
    lenient: true,
    takesAnyBody: true,
    params: z.object({
      uuid: uuid('value is missing or not a text; choose a uuid').describe('Uuid of the new VM'),
      image_uuid: text().describe('The image of which it is made'),
      image_url: boundedText(4_000)
        .optional()
        .describe('Where the server loads the image if it does not have it; its agent must allow the URL'),
      image_digest: boundedText(100).optional().describe('The digest that the archive at `image_url` must have'),
      server_uuid: uuid().optional().describe('Only this server'),
      nic_tags: array().optional().describe('NIC tags that the server must have'),
      package: object().optional().describe('Its package, as for `POST /allocate`'),
      locality: object().optional().describe('`near` and `far` other VMs, as for `POST /allocate`'),
      traits: object().optional().describe('Traits that the server must have'),
    }),
    preconditions: [],
    responses: {
      202: {
        description: 'The room is held, and the job was created; or an equal request has created it',
        schema: answer({ job_uuid: uuid(), vm_uuid: uuid() }).meta({ id: 'VmProvision' }),
        example: { job_uuid: JOB, vm_uuid: VM },
      },
      409: errorResponse(
        'No server has room, and the message sums up why; or there is a VM with this uuid, or a job that creates one',
        'NoAllocatableServersError',
        'VolumeServerNoResourcesError',
        'VmExists',
        'VmHasWorkflowJob',
      ),
      429: errorResponse('The caller holds room for the maximum number of VMs already', 'TooManyClaims'),
      503: errorResponse('TooManyWorkflowJobs: as many jobs are unfinished as there may be', 'TooManyWorkflowJobs'),
    },
  },
});
