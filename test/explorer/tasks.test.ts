/** Every interleaving of small worlds of tasks: rows, journal, what is on its way, and what may become of each. */
import { brokenTasks, taskPlans } from './tasks/plans.ts';
import { findAll, walkAll } from './walk.ts';

walkAll(taskPlans);
findAll(brokenTasks);
