/** All small worlds. */
import type { BrokenWorld, Plan } from './plan.ts';
import { brokenRosters, deepRosterPlans, rosterPlans } from './roster/plans.ts';

export const plans: Plan[] = [...rosterPlans];
export const deepPlans: Plan[] = [...deepRosterPlans];
export const brokenWorlds: BrokenWorld[] = [...brokenRosters];
