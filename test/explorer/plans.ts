/** All small worlds. */

import { brokenLeaving, leavingPlans } from './leaving/plans.ts';
import type { BrokenWorld, Plan } from './plan.ts';
import { brokenRosters, deepRosterPlans, rosterPlans } from './roster/plans.ts';
import { brokenTasks, deepTaskPlans, taskPlans } from './tasks/plans.ts';
import { brokenWaitlists, deepWaitlistPlans, waitlistPlans } from './waitlist/plans.ts';
import { brokenWatching, deepWatchingPlans, watchingPlans } from './watching/plans.ts';

export const plans: Plan[] = [...rosterPlans, ...watchingPlans, ...leavingPlans, ...taskPlans, ...waitlistPlans];
export const deepPlans: Plan[] = [...deepRosterPlans, ...deepWatchingPlans, ...deepTaskPlans, ...deepWaitlistPlans];
export const brokenWorlds: BrokenWorld[] = [
  ...brokenRosters,
  ...brokenWatching,
  ...brokenLeaving,
  ...brokenTasks,
  ...brokenWaitlists,
];
