/** All figures, in the order of the table. */
import type { Figure } from './figure.ts';
import { agentCost } from './figures/agents.ts';
import { annealer } from './figures/annealer.ts';
import { arrival } from './figures/arrival.ts';
import { claims } from './figures/claims.ts';
import { eventCost } from './figures/event-cost.ts';
import { instanceKilled } from './figures/instance-killed.ts';
import { listServers } from './figures/list-servers.ts';
import { lostAgents } from './figures/lost-agents.ts';
import { manyAgents } from './figures/many-agents.ts';
import { placement } from './figures/placement.ts';
import { pushAbort } from './figures/push-abort.ts';
import { pushJob } from './figures/push-job.ts';
import { pushJobs } from './figures/push-jobs.ts';
import { pushTakeover } from './figures/push-takeover.ts';
import { recordReportsRate } from './figures/record-reports.ts';
import { revokedToken } from './figures/revoked-token.ts';
import { snapshot } from './figures/snapshot.ts';
import { statements } from './figures/statements.ts';
import { stream } from './figures/stream.ts';
import { taskRate } from './figures/task-rate.ts';
import { taskTrip } from './figures/task-trip.ts';
import { ticketRate } from './figures/ticket-rate.ts';
import { ticketTrip } from './figures/ticket-trip.ts';

export const figures: readonly Figure[] = [
  agentCost,
  statements,
  lostAgents,
  taskTrip,
  taskRate,
  recordReportsRate,
  claims,
  eventCost,
  snapshot,
  ticketTrip,
  ticketRate,
  pushJob,
  pushJobs,
  pushAbort,
  pushTakeover,
  instanceKilled,
  arrival,
  manyAgents,
  listServers,
  placement,
  annealer,
  revokedToken,
  stream,
];
