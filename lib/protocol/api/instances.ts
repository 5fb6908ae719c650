/** The instances of this control plane, as the answering instance sees them. */
import { z } from 'zod';
import { answer, contracts, errorResponse, type Known } from './contract/contract.ts';
import { uuid } from './contract/rules.ts';

/**
 * Whether an instance admits new agents: `open`, `paced` (it tells some to return later), `closed`
 * (none).
 */
export const ADMISSIONS = ['open', 'paced', 'closed'] as const;
export type Admission = (typeof ADMISSIONS)[number];

const instance = answer({
  uuid: uuid(),
  run: uuid(),
  url: z.string(),
  pid: z.int(),
  version: z.string(),
  state: z.enum(['live', 'draining']),
  agents: z.int(),
  admission: z
    .enum(ADMISSIONS)
    .nullable()
    .describe(
      'Whether new agents are admitted: `open`, `paced` (some were told to return later), `closed` (none); null if its version does not report it',
    ),
  lease_age_ms: z.number().describe('Time since its last beat, as the answering instance observes it'),
  started: z.string(),
}).meta({ id: 'Instance' });

export type Instance = Known<z.output<typeof instance>>;

const example = {
  uuid: '5f0a6d5c-1f3e-4f0b-9d4e-6a1c2b3d4e5f',
  run: 'c2b8f1de-7a64-4b0c-8e21-90d3a5f6b7c8',
  url: 'http://10.0.0.11:8080',
  pid: 4711,
  version: '0.2.0',
  state: 'live',
  agents: 5200,
  admission: 'open',
  lease_age_ms: 250,
  started: '2026-01-31T12:00:00.000Z',
};

export const instanceContracts = contracts({
  ListInstances: {
    method: 'GET',
    path: '/instances',
    summary: 'The instances and their leases',
    tag: 'instances',
    origin: 'own',
    params: z.object({}),
    preconditions: [],
    responses: { 200: { description: 'OK', schema: z.array(instance), example: [example] } },
  },
  DrainInstance: {
    method: 'POST',
    path: '/instances/:uuid/drain',
    summary:
      'Takes an instance out of service in good order: its agents move, it answers its open requests, then it stops',
    tag: 'instances',
    origin: 'own',
    params: z.object({ uuid: uuid().describe('Uuid of the instance, as GET /instances has it') }),
    preconditions: [],
    responses: {
      202: {
        description: 'The instance is draining; a repeat is harmless',
        schema: instance,
        example: { ...example, state: 'draining' },
      },
      404: errorResponse('No such instance is live', 'ResourceNotFound'),
      409: errorResponse('LastInstance: no other instance would take its place', 'LastInstance'),
    },
  },
});
