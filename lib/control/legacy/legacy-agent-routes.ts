/**
 * Posts of agents without a link, to any instance: sysinfo, heartbeats, and sometimes the machine's
 * state. Paths, bodies and answers are the reference's; a request that crashed it gets a clear 409.
 */
import { z } from 'zod';
import { ServerNotFoundError } from '../servers/servers.ts';
import { empty, type Route, route } from '../http/route.ts';
import { object } from '../../protocol/api/rules.ts';
import { noServer, serverUuid } from '../servers/routes/server-routes.ts';

export const legacyAgentRoutes: Route[] = [
  route({
    name: 'RegisterSysinfo',
    method: 'POST',
    path: '/servers/:server_uuid/sysinfo',
    summary: "Keeps a server's sysinfo and creates the server if it is new; for agents that have no link",
    tag: 'servers',
    origin: 'reference',
    need: 'agent',
    params: z.object({ ...serverUuid, sysinfo: object() }),
    preconditions: [],
    responses: {
      200: { description: 'Kept' },
      409: { description: "The sysinfo is another machine's" },
      429: { description: 'TooManyNewServers: the caller has made too many servers in an hour' },
    },
    async handler({ params, services, actor, source }) {
      const isNew = await services.servers.recordSysinfo(params.server_uuid, params.sysinfo, undefined, () => {
        const refusal = services.newServers.refusalOf(actor, source, params.server_uuid);
        if (refusal !== undefined) throw refusal;
      });
      if (isNew) await services.legacyAgents.created(params.server_uuid);
      await services.agentSources.record(params.server_uuid, source);
      return empty(200);
    },
  }),
  route({
    name: 'PostHeartbeat',
    method: 'POST',
    path: '/servers/:server_uuid/events/heartbeat',
    summary: 'An agent without a link says that it is there; without effect where the server does not exist',
    tag: 'servers',
    origin: 'reference',
    need: 'agent',
    quiet: true,
    params: z.object(serverUuid),
    preconditions: [],
    responses: { 204: { description: 'Heard' } },
    handler({ params, services, source }) {
      services.legacyAgents.heartbeat(params.server_uuid);
      services.agentSources.heard(params.server_uuid, source);
      return empty(204);
    },
  }),
  route({
    name: 'PostStatus',
    method: 'POST',
    path: '/servers/:server_uuid/events/status',
    summary: 'An agent without a link reports the VMs, memory and disk of its machine',
    tag: 'servers',
    origin: 'reference',
    need: 'agent',
    quiet: true,
    lenient: true,
    takesAnyBody: true,
    params: z.object(serverUuid),
    preconditions: [],
    responses: { 204: { description: 'Kept' }, ...noServer },
    async handler({ params, rawParams, services }) {
      if (!(await services.servers.recordReport(params.server_uuid, rawParams)))
        throw new ServerNotFoundError(params.server_uuid);
      return empty(204);
    },
  }),
];
