/** The lines of layers.ts for what is carried out as duties: jobs of two kinds, the annealer. */

/** Lists of imports that several lines have, from layers.ts. */
interface SharedImports {
  database: readonly string[];
  subsystem: readonly string[];
  rest: readonly string[];
}

export const dutyLayers = ({
  database,
  subsystem,
  rest,
}: SharedImports): Readonly<Record<string, readonly string[]>> => ({
  // Push jobs: their work is a duty for each job, and a task for each node. They are created for
  // servers, or for groups of them, which are documents.
  'control/push': [
    ...database,
    'platform/moray',
    'control/documents/document-bucket.ts',
    'platform/bus',
    'platform/waits',
    'protocol',
    'protocol/link',
    'protocol/api',
    'control/audit-part.ts',
    'control/duty',
    'control/tasks',
    'control/waitlist',
  ],
  // Work of several steps on one server: a duty for each job, and a task for many of its steps.
  'control/workflows': [
    ...database,
    'platform/bus',
    'platform/waits',
    'protocol',
    'protocol/api',
    'control/audit-part.ts',
    'control/duty',
    'control/servers',
    'control/tasks',
    'control/waitlist',
    'control/vms',
  ],
  'control/workflows/routes': [
    ...rest,
    'control/access',
    'protocol',
    'control/request-errors.ts',
    'control/servers',
    'control/tasks',
    'control/tasks/requests',
    'control/placement',
    'control/placement/routes',
    'control/vms',
    'control/vms/routes',
    'control/workflows',
  ],
  'control/workflows/subsystem.ts': [
    ...database,
    'control/subsystem.ts',
    'control/servers',
    'platform/moray',
    'control/tasks',
    'control/vms',
    'control/placement',
    'control/workflows',
    'control/workflows/routes',
  ],
  // Roles bound to servers in a graph. Their definitions are documents; their runs are tasks.
  'control/annealer': [
    ...database,
    'platform/moray',
    'platform/bus',
    'platform/waits',
    'protocol',
    'protocol/api',
    'control/documents',
    'control/duty',
    'control/request-errors.ts',
    'control/servers',
    'control/tasks',
  ],
  'control/annealer/routes': [...rest, 'control/access', 'control/annealer'],
  'control/annealer/subsystem.ts': [
    ...database,
    'control/subsystem.ts',
    'platform/bus',
    'platform/moray',
    'control/documents/routes',
    'control/servers',
    'control/tasks',
    'control/annealer',
    'control/annealer/routes',
  ],
  'control/push/expiry/expiry-record.ts': ['control/audit-part.ts', 'control/audit'],
  'control/push/schedules/routes': [...rest, 'control/access', 'control/push', 'control/push/routes'],
  'control/push/schedules/subsystem.ts': [
    ...database,
    ...subsystem,
    'control/push',
    'control/push/expiry/expiry-record.ts',
    'control/push/schedules/routes',
  ],
  'control/push/routes': [...rest, 'control/access', 'control/servers', 'control/tasks/routes', 'control/push'],
  'control/push/subsystem.ts': [
    ...database,
    ...subsystem,
    'control/push',
    'control/push/expiry/expiry-record.ts',
    'control/push/routes',
  ],
});
