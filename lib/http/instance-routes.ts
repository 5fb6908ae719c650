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
  state: z.string(),
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
];
