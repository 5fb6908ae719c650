/** Every interleaving of small worlds of the waitlist: one queue, those who wait, and what they are told. */

import { brokenWaitlists, waitlistPlans } from './waitlist/plans.ts';
import { findAll, walkAll } from './walk.ts';

walkAll(waitlistPlans);
findAll(brokenWaitlists);
