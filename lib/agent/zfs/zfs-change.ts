/**
 * Which change of a dataset this agent refuses. --zfs names datasets: they and all below them may
 * be changed, but one that is named is not destroyed or renamed, so no pool loses its root. What
 * VMs or the agent itself use is neither destroyed, renamed, nor rolled back. Pure.
 */
import { datasetOf } from '../../protocol/zfs.ts';

export type ZfsAction = 'create' | 'destroy' | 'snapshot' | 'rollback' | 'rename' | 'clone' | 'set';

/** What the agent knows of the server at the moment of the change. */
export interface ZfsUse {
  /** The datasets of --zfs. */
  allowed: readonly string[];
  /** Parts of names that belong to VMs, which are not to be changed by their datasets. */
  vmUuids: readonly string[];
  /** Directories that VMs or the agent use, absolute. */
  directories: readonly string[];
}

/** These decide over other parts of the server than the dataset. */
const PROPERTIES_OF_SERVER: readonly string[] = ['mountpoint', 'sharenfs', 'sharesmb', 'keylocation'];

/** Whether where the dataset is mounted counts for `reasonInUse`. */
export const dependsOnUse = (action: ZfsAction, name: string): boolean =>
  action === 'rollback' || ((action === 'destroy' || action === 'rename') && !name.includes('@'));

/** Why the name cannot be changed like that, whoever uses it; undefined if it can. */
export function reasonNotToChange(action: ZfsAction, name: string, { allowed, vmUuids }: ZfsUse): string | undefined {
  const dataset = datasetOf(name);
  if (!allowed.some((root) => isWithin(dataset, root)))
    return allowed.length === 0
      ? 'This agent changes no datasets: it was started without --zfs'
      : `This agent changes only datasets within ${allowed.join(', ')}, and ${dataset} is not one of them`;
  const isEnd = (action === 'destroy' || action === 'rename') && name === dataset;
  if (isEnd && !dataset.includes('/')) return `${dataset} is the root dataset of a pool, and stays`;
  if (isEnd && allowed.includes(dataset)) return `${dataset} is named by --zfs of this agent, and stays`;
  if (!dependsOnUse(action, name)) return undefined;
  const vm = vmUuids.find((uuid) => dataset.split('/').includes(uuid));
  return vm === undefined ? undefined : `${dataset} belongs to VM ${vm} of this server`;
}

/** Why a dataset with this mount point is in use; undefined if it is not. */
export function reasonInUse(dataset: string, mountpoint: string, { directories }: ZfsUse): string | undefined {
  if (!mountpoint.startsWith('/')) return undefined;
  const used = directories.find((one) => isWithin(one, mountpoint) || isWithin(mountpoint, one));
  return used === undefined ? undefined : `${dataset} is in use: it has ${used}, which VMs or the agent use`;
}

/** Why these properties are not set; undefined if they are. */
export function reasonNotSettable(names: readonly string[]): string | undefined {
  const refused = names.find((name) => PROPERTIES_OF_SERVER.includes(name));
  return refused === undefined
    ? undefined
    : `The property ${refused} is not changed by this agent; use zfs on the server`;
}

const isWithin = (name: string, root: string): boolean => root === '/' || name === root || name.startsWith(`${root}/`);
