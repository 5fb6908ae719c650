/** Every order of events while instances leave. */
import { brokenLeaving, leavingPlans } from './leaving/plans.ts';
import { findAll, walkAll } from './walk.ts';

walkAll(leavingPlans);
findAll(brokenLeaving);
