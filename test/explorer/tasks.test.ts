/**
 * Every interleaving of small worlds of tasks: rows, journal, messages in transit, and what may
 * happen to each.
 */
import { brokenTasks, taskPlans } from './tasks/plans.ts';
import { findAll, walkAll } from './walk.ts';

walkAll(taskPlans);
findAll(brokenTasks);
