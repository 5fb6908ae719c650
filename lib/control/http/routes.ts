/** The table of all routes. */
import { auditRoutes } from './audit-routes.ts';
import { eventRoutes } from './event-routes.ts';
import { instanceRoutes } from './instance-routes.ts';
import { legacyAgentRoutes } from './legacy-agent-routes.ts';
import { miscRoutes } from './misc-routes.ts';
import type { Route } from './route.ts';
import { serverRoutes } from './server-routes.ts';
import { serverTaskRoutes } from './server-task-routes.ts';
import { taskRoutes } from './task-routes.ts';
import { ticketRoutes } from './ticket-routes.ts';
import { tokenRoutes } from './token-routes.ts';

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
