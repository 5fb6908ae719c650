/**
 * Every interleaving of the roster's small worlds: sessions, session losses, leases and the agents'
 * links.
 */
import { brokenRosters, rosterPlans } from './roster/plans.ts';
import { findAll, walkAll } from './walk.ts';

walkAll(rosterPlans);
findAll(brokenRosters);
