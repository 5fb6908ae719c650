/** The table of all routes. */
import { auditRoutes } from '../audit/audit-routes.ts';
import { eventRoutes } from '../events/event-routes.ts';
import { instanceRoutes } from '../roster/instance-routes.ts';
import { legacyAgentRoutes } from '../legacy/legacy-agent-routes.ts';
import { miscRoutes } from './misc-routes.ts';
import type { Route } from './route.ts';
import { serverRoutes } from '../servers/routes/server-routes.ts';
import { serverTaskRoutes } from '../tasks/routes/server-task-routes.ts';
import { taskRoutes } from '../tasks/routes/task-routes.ts';
import { ticketRoutes } from '../waitlist/routes/ticket-routes.ts';
import { tokenRoutes } from '../access/token-routes.ts';

export const routes: readonly Route[] = [
  ...miscRoutes,
  ...serverRoutes,
  ...legacyAgentRoutes,
  ...serverTaskRoutes,
  ...taskRoutes,
  ...ticketRoutes,
  ...instanceRoutes,
  ...tokenRoutes,
  ...auditRoutes,
  ...eventRoutes,
];
