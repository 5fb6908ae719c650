/** The instances of this control plane, as the one that answers sees them. */
import { z } from 'zod';
import { ok, type Route, route } from './route.ts';
import { uuid } from './rules.ts';

const instance = z.looseObject({
  uuid: uuid(),
  run: uuid(),
  url: z.string(),
  pid: z.int(),
  version: z.string(),
  state: z.enum(['live', 'draining']),
  agents: z.int(),
  lease_age_ms: z.number().describe('For how long its beat has stood still, as the answering instance observes it'),
  started: z.string(),
});

export const instanceRoutes: Route[] = [
  route({
    name: 'ListInstances',
    method: 'GET',
    path: '/instances',
    summary: 'The instances and their leases',
    tag: 'instances',
    origin: 'own',
    params: z.object({}),
    preconditions: [],
    responses: { 200: { description: 'OK', schema: z.array(instance) } },
    handler: async ({ services }) => ok(await services.roster.instances()),
  }),
  route({
    name: 'DrainInstance',
    method: 'POST',
    path: '/instances/:uuid/drain',
    summary: 'Takes an instance out of service in good order: its agents move, its callers are answered, then it stops',
    tag: 'instances',
    origin: 'own',
    params: z.object({ uuid: uuid().describe('Of the instance, as GET /instances has it') }),
    preconditions: [],
    responses: {
      202: { description: 'It is draining; again is harmless', schema: instance },
      404: { description: 'No such instance is live' },
      409: { description: 'No other instance would take its place' },
    },
    handler: async ({ params, services }) => ({ status: 202, body: await services.roster.drain(params.uuid) }),
  }),
];
