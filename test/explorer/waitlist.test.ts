/**
 * Every interleaving of small worlds of the waitlist: one queue, the waiting callers, and their
 * answers.
 */

import { brokenWaitlists, waitlistPlans } from './waitlist/plans.ts';
import { findAll, walkAll } from './walk.ts';

walkAll(waitlistPlans);
findAll(brokenWaitlists);
