/**
 * The systems that stand on the core: push jobs, whose work is duties, tasks and tickets, and
 * organizations. The core does not know them. They are made here, each from the core and those
 * before it, because routes, the listener and other systems use them. A new one is a folder, a line
 * here and a line in `subsystems.ts`; one that no other part uses is made in its own `open` and has
 * no line here.
 */
import type { Core } from './core.ts';
import { makeOrganizations } from './organizations/subsystem.ts';
import { makePushJobs } from './push/subsystem.ts';

/** All parts of an instance from which the subsystems of `coreSubsystems` are opened. */
export function partsOf(core: Core) {
  const pushJobs = makePushJobs(core);
  return { ...core, ...makeOrganizations(core), pushJobs };
}

export type Parts = ReturnType<typeof partsOf>;
