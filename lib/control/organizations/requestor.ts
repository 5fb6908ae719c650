/**
 * Who sends a request about an organization, and what that permits. Pure. The rule of Chef:
 * reading needs the group `pushy_job_readers` where it exists, else any user or client may;
 * creating and changing needs `pushy_job_writers`, or `admins` where that group does not exist.
 */
import { type Actor, permits } from '../access/token.ts';
import { NoAccessError } from './organization-errors.ts';
import type { OrganizationNode, PrincipalKind } from './organization-store.ts';

export const READERS = 'pushy_job_readers';
export const WRITERS = 'pushy_job_writers';
export const ADMINS = 'admins';

export type PushJobAction = 'read' | 'write';

/** `token`: a token of this API, with the rights that it has on /push-jobs. */
export interface Requestor {
  name: string;
  kind: PrincipalKind | 'token';
  /** Names of the groups that it belongs to, also by way of other groups. */
  groups: ReadonlySet<string>;
  /** The group that each action needs; undefined: none. */
  needs: Readonly<Record<PushJobAction, string | undefined>>;
  /** The actor that audit records name. */
  actor: Actor;
}

/** `existing`: must include every existing group that the rule names. */
export function neededGroups(existing: ReadonlySet<string>): Requestor['needs'] {
  return { read: existing.has(READERS) ? READERS : undefined, write: existing.has(WRITERS) ? WRITERS : ADMINS };
}

/** @throws NoAccessError that names the group that the requestor is not in */
export function checkMayAct(requestor: Requestor, action: PushJobAction): void {
  const rule = brokenRule(requestor, action);
  if (rule !== undefined) throw new NoAccessError(requestor.name, rule);
}

export function mayAct(requestor: Requestor, action: PushJobAction): boolean {
  return brokenRule(requestor, action) === undefined;
}

function brokenRule({ kind, groups, needs, actor }: Requestor, action: PushJobAction): string | undefined {
  if (kind === 'token') {
    const role = action === 'read' ? 'reader' : 'operator';
    return permits(actor.roles, role) ? undefined : `it needs a token with the role ${role}`;
  }
  const group = needs[action];
  return group === undefined || groups.has(group) ? undefined : `it is not in the group ${group}`;
}

/** Whether the requestor may run push jobs on the node. */
export function mayExecute({ kind, groups }: Requestor, { executors }: Pick<OrganizationNode, 'executors'>): boolean {
  return kind === 'token' || executors === undefined || [...executors].some((group) => groups.has(group));
}
