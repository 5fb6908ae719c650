/** All small worlds. */
import type { BrokenWorld, Plan } from './plan.ts';
import { brokenRosters, deepRosterPlans, rosterPlans } from './roster/plans.ts';
import { brokenTasks, deepTaskPlans, taskPlans } from './tasks/plans.ts';

export const plans: Plan[] = [...rosterPlans, ...taskPlans];
export const deepPlans: Plan[] = [...deepRosterPlans, ...deepTaskPlans];
export const brokenWorlds: BrokenWorld[] = [...brokenRosters, ...brokenTasks];
