/**
 * The routes for the images of one server; two of them are Triton's. The agent has them, and a task
 * asks it: the control plane stores no images. Their names leave room for a noun `Image`.
 */
import { z } from 'zod';
import { contracts, extensibleObject } from './contract/contract.ts';
import { array, serverUuid, text, uuid } from './contract/rules.ts';
import { failures, refusals, taskId, taskIdExample, underTicket } from './server-tasks.ts';

/**
 * An image in the form that its agent answers with. Agents of Triton answer with a manifest of
 * IMGAPI.
 */
export const serverImage = extensibleObject({ uuid: z.string().optional(), state: z.string().optional() }).meta({
  id: 'ServerImage',
});

const count = z.int().min(0);
export const listedServerImage = extensibleObject({
  uuid: z.string(),
  state: z.string().describe('fetching, unpacking, ready, failed or removing'),
  error: extensibleObject({ code: z.string(), message: z.string() })
    .optional()
    .describe('Why its load failed; agents of older versions do not tell it here'),
  source: z
    .string()
    .describe('The URL of the image without query, `stream`, or `vm` if it was made from a VM of the server'),
  digest: z.string().optional().describe('Digest of its archive; absent until it is known'),
  size: count.describe('Bytes of its layers, unpacked; 0 until that is known. Images may have layers in common'),
  last_used_at: z.string().describe('When a VM has begun or ended to use it'),
  vms: count.describe('How many VMs of the server use it'),
}).meta({ id: 'ListedServerImage' });

export const serverImageContracts = contracts({
  ListServerImages: {
    method: 'GET',
    path: '/servers/:server_uuid/images',
    summary: 'The images of a server as its agent knows them at the moment',
    longRequest: 'wait',
    tag: 'servers',
    origin: 'own',
    params: z.object(serverUuid),
    preconditions: ['server', 'running'],
    // It runs a task.
    requiredRole: 'operator',
    responses: {
      200: {
        description: 'OK',
        schema: z.array(listedServerImage),
        example: [
          {
            uuid: '0d1ae7e6-3c8d-4f0a-8d0e-6f1d0c6c2b11',
            state: 'ready',
            source: 'https://images.example.com/busybox.tar',
            digest: 'sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08',
            size: 4_313_088,
            last_used_at: '2026-11-27T09:00:00.000Z',
            vms: 2,
          },
        ],
      },
      ...failures,
    },
  },
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
