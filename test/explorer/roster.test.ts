/** Every interleaving of the roster's small worlds: sessions, verdicts, leases and the agents' links. */
import { brokenRosters, rosterPlans } from './roster/plans.ts';
import { findAll, walkAll } from './walk.ts';

walkAll(rosterPlans);
findAll(brokenRosters);
