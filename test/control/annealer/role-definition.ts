/** Roles for tests of their graph: what a test does not say is empty. */
import type { RoleDefinition } from '../../../lib/control/annealer/role-graph.ts';

export const roleDefinition = (name: string, more: Partial<RoleDefinition> = {}): RoleDefinition => ({
  ...{ name, jig: 'noop', flags: [], requires: [], runsAfter: [], conflicts: [], provides: [] },
  ...more,
});
