/** All figures, in the order of the table. */
import type { Figure } from './figure.ts';
import { agentCost } from './figures/agents.ts';
import { instanceKilled } from './figures/instance-killed.ts';
import { manyAgents } from './figures/many-agents.ts';
import { taskRate } from './figures/task-rate.ts';
import { taskTrip } from './figures/task-trip.ts';
import { ticketRate } from './figures/ticket-rate.ts';
import { ticketTrip } from './figures/ticket-trip.ts';

export const figures: readonly Figure[] = [
  agentCost,
  taskTrip,
  taskRate,
  ticketTrip,
  ticketRate,
  instanceKilled,
  manyAgents,
];
