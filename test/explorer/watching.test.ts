/**
 * Every order of ticks, stalls and outages in small worlds of instances that watch agents and each
 * other.
 */
import { findAll, walkAll } from './walk.ts';
import { brokenWatching, watchingPlans } from './watching/plans.ts';

walkAll(watchingPlans);
findAll(brokenWatching);
