/** What workflow jobs contribute to an instance. */

import type { BucketStore } from '../../platform/moray/bucket-store.ts';
import { readMigrations } from '../../platform/postgres/migration-files.ts';
import type { Random } from '../../platform/random.ts';
import type { Allocator } from '../placement/allocator.ts';
import type { Servers } from '../servers/servers.ts';
import type { Subsystem, SubsystemDefinition } from '../subsystem.ts';
import type { Tasks } from '../tasks/tasks.ts';
import { VmRegistry } from '../vms/vm-registry.ts';
import { provisionRoutes } from './routes/provision-routes.ts';
import { setupRoutes } from './routes/setup-routes.ts';
import { workflowRoutes } from './routes/workflow-routes.ts';
import { WorkflowJobs, type WorkflowJobsDeps } from './workflow-jobs.ts';
import { WORKFLOW_DUTY } from './workflow-store.ts';

const KEEP_DAYS = 30;

interface WorkflowParts extends Omit<WorkflowJobsDeps, 'offerDuties' | 'tasks' | 'servers' | 'allocator'> {
  allocator: Allocator;
  buckets: BucketStore;
  tasks: Tasks;
  servers: Servers;
  random: Random;
  duties: { offer(): void };
  instanceLeaving: AbortSignal;
}

export const workflowSubsystem: SubsystemDefinition<WorkflowParts> = {
  // They need the duties and the tasks.
  migrations: readMigrations('workflows', import.meta.dirname),
  open(parts): Subsystem {
    const workflowJobs = new WorkflowJobs({ ...parts, offerDuties: () => parts.duties.offer() });
    return {
      name: 'workflow jobs',
      routes: [
        ...workflowRoutes({ ...parts, workflowJobs }),
        ...setupRoutes({ ...parts, workflowJobs }),
        ...provisionRoutes({ ...parts, workflowJobs, vms: new VmRegistry(parts) }),
      ],
      start: () => workflowJobs.start(),
      stop: () => workflowJobs.stop(),
      dutyHandlers: { [WORKFLOW_DUTY]: workflowJobs.runner },
      metrics: [
        {
          kind: 'labelled gauge',
          name: 'workflow_jobs',
          help: 'Unfinished workflow jobs of the whole zone by execution; every instance reports the same numbers',
          label: 'execution',
          fetch: () => workflowJobs.counts(),
        },
      ],
      chores: [{ name: 'old workflow jobs', batch: () => workflowJobs.deleteOlderThan(KEEP_DAYS) }],
    };
  },
};
