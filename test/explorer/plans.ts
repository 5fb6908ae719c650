/** All small worlds. */
import type { BrokenWorld, Plan } from './plan.ts';
import { brokenRosters, deepRosterPlans, rosterPlans } from './roster/plans.ts';
import { brokenTasks, deepTaskPlans, taskPlans } from './tasks/plans.ts';
import { brokenWaitlists, deepWaitlistPlans, waitlistPlans } from './waitlist/plans.ts';

export const plans: Plan[] = [...rosterPlans, ...taskPlans, ...waitlistPlans];
export const deepPlans: Plan[] = [...deepRosterPlans, ...deepTaskPlans, ...deepWaitlistPlans];
export const brokenWorlds: BrokenWorld[] = [...brokenRosters, ...brokenTasks, ...brokenWaitlists];
