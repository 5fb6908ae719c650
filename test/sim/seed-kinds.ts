/** The beginnings of the names of seeds that are not common ones. */

/** Additions that the common seeds rarely reach: see `rare.ts`. */
export const RARE = 'rare-';
/** Seeds in which more agents arrive than the instances can admit: see `arriving.ts`. */
export const ARRIVING = 'arriving-';
/** Seeds with duties: see `duties.ts`. */
export const DUTIES = 'duties-';
/** Seeds with push jobs: see `push.ts`. */
export const PUSH = 'push-';
/** Seeds with VMs: see `vms.ts`. */
export const VMS = 'vms-';
/** Seeds with deployments of roles: see `deployments.ts`. */
export const ANNEALER = 'annealer-';
/** Seeds with workflow jobs: see `workflows.ts`. */
export const WORKFLOWS = 'workflows-';
