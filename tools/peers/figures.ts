/** The figures that compare cnapi with alternatives, in the order of the table. */
import type { Figure } from '../bench/figure.ts';
import { fleetCommand } from './figures/fleet-command.ts';
import { locks } from './figures/locks.ts';
import { presence } from './figures/presence.ts';
import { taskBacklog, taskCallers, taskTrips } from './figures/tasks.ts';

export const peerFigures: readonly Figure[] = [taskTrips, taskCallers, taskBacklog, locks, presence, fleetCommand];
