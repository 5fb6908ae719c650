/** The states of servers in push jobs: free, in a job, in rehab, or down. */
import { z } from 'zod';
import { answer, contracts, type Known } from '../contract/contract.ts';
import { list, uuid } from '../contract/rules.ts';

export const NODE_AVAILABILITIES = ['idle', 'in_job', 'rehab', 'down'] as const;

const state = answer({
  server_uuid: uuid(),
  name: z.string().describe('The hostname of the server'),
  status: z
    .enum(NODE_AVAILABILITIES)
    .describe(
      '`idle`: it can vote yes. `in_job`: it has voted yes, or runs the command. `rehab`: its agent is being asked to forget a ' +
        'job. `down`: no instance holds its agent',
    ),
  job: uuid().optional().describe('The push job that has the server'),
}).meta({ id: 'PushNodeState' });

export type PushNodeState = Known<z.output<typeof state>>;

const example = {
  server_uuid: '564d5b45-3a8c-4c1f-9d0a-0123456789ab',
  name: 'web-1',
  status: 'in_job',
  job: 'c0ffee00-1a2b-4c3d-8e4f-5a6b7c8d9e0f',
};

export const pushNodeContracts = contracts({
  ListPushNodeStates: {
    method: 'GET',
    path: '/push-nodes',
    summary: 'Lists the states of these servers in push jobs; servers that do not exist are left out',
    tag: 'push jobs',
    origin: 'own',
    params: z.object({
      server_uuid: list('server_uuid', /^[-a-fA-F0-9]{36}$/).describe('Uuids; several by comma'),
    }),
    repeatable: ['server_uuid'],
    preconditions: [],
    responses: { 200: { description: 'In order of their uuids', schema: z.array(state), example: [example] } },
  },
});
