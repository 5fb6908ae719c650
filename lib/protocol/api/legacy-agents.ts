/**
 * Posts of agents without a link, to any instance: sysinfo, heartbeats, and sometimes the machine's
 * state. Paths, bodies and answers are Triton's; a request that crashed it gets a clear 409.
 */
import { z } from 'zod';
import { contracts, errorResponse } from './contract/contract.ts';
import { object, serverUuid } from './contract/rules.ts';
import { noServer } from './servers.ts';

export const legacyAgentContracts = contracts({
  RegisterSysinfo: {
    method: 'POST',
    path: '/servers/:server_uuid/sysinfo',
    summary: "Keeps a server's sysinfo and creates the server if it is new; for agents that have no link",
    tag: 'servers',
    origin: 'reference',
    requiredRole: 'agent',
    params: z.object({ ...serverUuid, sysinfo: object() }),
    preconditions: [],
    responses: {
      200: { description: 'Kept' },
      409: errorResponse("The sysinfo is another machine's", 'InvalidArgument', 'EtagConflict'),
      429: errorResponse('TooManyNewServers: the caller has created too many servers in an hour', 'TooManyNewServers'),
    },
  },
  PostHeartbeat: {
    method: 'POST',
    path: '/servers/:server_uuid/events/heartbeat',
    summary: 'An agent without a link says that it is there; without effect where the server does not exist',
    tag: 'servers',
    origin: 'reference',
    requiredRole: 'agent',
    params: z.object(serverUuid),
    preconditions: [],
    responses: { 204: { description: 'Heard' } },
  },
  PostStatus: {
    method: 'POST',
    path: '/servers/:server_uuid/events/status',
    summary: 'An agent without a link reports the VMs, memory and disk of its machine',
    tag: 'servers',
    origin: 'reference',
    requiredRole: 'agent',
    lenient: true,
    takesAnyBody: true,
    params: z.object(serverUuid),
    preconditions: [],
    responses: { 204: { description: 'Kept' }, ...noServer },
  },
});
