/**
 * Triton's routes for the images of one server. The agent has them, and a task asks it: the control
 * plane stores no images. Their names leave room for a noun `Image`.
 */
import { z } from 'zod';
import { contracts, extensibleObject } from './contract/contract.ts';
import { array, serverUuid, text, uuid } from './contract/rules.ts';
import { failures, refusals, taskId, taskIdExample, underTicket } from './server-tasks.ts';

/** An image in the form that its agent answers with. Agents of Triton answer with a manifest of IMGAPI. */
const serverImage = extensibleObject({ uuid: z.string().optional(), state: z.string().optional() }).meta({
  id: 'ServerImage',
});

export const serverImageContracts = contracts({
  EnsureServerImage: {
    method: 'POST',
    path: '/servers/:server_uuid/ensure-image',
    summary:
      'Has the agent see to it that an image is on the server. An agent of this project loads nothing without a URL: create the task `image_ensure_present` with one',
    tag: 'servers',
    origin: 'reference',
    params: z.object({
      ...serverUuid,
      ...underTicket,
      image_uuid: text().describe('Uuid of the image'),
      zfs_storage_pool_name: text().optional().describe('For agents of Triton'),
      imgapiPeers: array().optional().describe('Other servers that have the image; for agents of Triton'),
    }),
    preconditions: ['server', 'running'],
    responses: {
      200: { description: 'The task was accepted', schema: taskId, example: taskIdExample },
      ...refusals,
    },
  },
  GetServerImage: {
    method: 'GET',
    path: '/servers/:server_uuid/images/:uuid',
    summary: 'An image as the agent of the server knows it at the moment',
    longRequest: 'wait',
    tag: 'servers',
    origin: 'reference',
    lenient: true,
    params: z.object({
      ...serverUuid,
      ...underTicket,
      uuid: uuid().describe('Uuid of the image'),
      jobid: text().optional().describe('Of the workflow; passed on to the agent'),
    }),
    preconditions: ['server'],
    // Its configuration may have secrets of the VM from which it was made.
    requiredRole: 'operator',
    responses: { 200: { description: 'OK', schema: serverImage }, ...failures },
  },
});
