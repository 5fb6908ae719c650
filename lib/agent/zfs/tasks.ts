/**
 * The tasks of ZFS, with the names and parameters of Triton's agent. Names are checked by `Zfs`.
 */
import { z } from 'zod';
import { MAX_ZFS_PROPERTIES } from '../../protocol/zfs.ts';
import { defineTask, type TaskContext, type TaskDefinition, type TaskDefinitions } from '../runner/task-definition.ts';
import { TaskFailure } from '../task-failure.ts';
import type { Zfs } from './zfs.ts';

const dataset = z.string();
const inAll = z.object({ dataset: dataset.optional() });
const onOne = z.object({ dataset });

const zfsQuery = <Schema extends z.ZodObject>(
  params: Schema,
  run: (zfs: Zfs, params: z.infer<Schema>, signal: AbortSignal) => Promise<Record<string, unknown>>,
): TaskDefinition =>
  defineTask({ lane: 'zfs', params, run: (given, context) => run(zfsOf(context), given, context.signal) });

const zfsChange = <Schema extends z.ZodObject>(
  params: Schema,
  run: (zfs: Zfs, params: z.infer<Schema>, signal: AbortSignal) => Promise<void>,
): TaskDefinition =>
  zfsQuery(params, async (zfs, given, signal) => {
    await run(zfs, given, signal);
    return {};
  });

export const zfsTasks = {
  zfs_list_datasets: zfsQuery(inAll, async (zfs, params, signal) => ({
    datasets: await zfs.listDatasets(params.dataset, signal),
  })),
  zfs_list_snapshots: zfsQuery(inAll, async (zfs, params, signal) => ({
    snapshots: await zfs.listSnapshots(params.dataset, signal),
  })),
  zfs_list_pools: zfsQuery(z.object({}), async (zfs, _, signal) => ({ pools: await zfs.listPools(signal) })),
  zfs_get_properties: zfsQuery(
    inAll.extend({ properties: z.array(z.string()).max(MAX_ZFS_PROPERTIES).optional() }),
    (zfs, params, signal) => zfs.properties(params, signal),
  ),
  zfs_set_properties: zfsChange(
    onOne.extend({ properties: z.record(z.string(), z.string()).refine(hasFew, 'are too many, or none') }),
    (zfs, params, signal) => zfs.set(params.dataset, params.properties, signal),
  ),
  zfs_create_dataset: zfsChange(onOne, (zfs, params, signal) => zfs.create(params.dataset, signal)),
  zfs_destroy_dataset: zfsChange(onOne, (zfs, params, signal) => zfs.destroy(params.dataset, signal)),
  zfs_snapshot_dataset: zfsChange(onOne, (zfs, params, signal) => zfs.snapshot(params.dataset, signal)),
  zfs_rollback_dataset: zfsChange(onOne, (zfs, params, signal) => zfs.rollback(params.dataset, signal)),
  zfs_rename_dataset: zfsChange(onOne.extend({ newname: z.string() }), (zfs, params, signal) =>
    zfs.rename(params.dataset, params.newname, signal),
  ),
  zfs_clone_dataset: zfsChange(onOne.extend({ snapshot: z.string() }), (zfs, params, signal) =>
    zfs.clone(params.snapshot, params.dataset, signal),
  ),
} satisfies TaskDefinitions;

function hasFew(properties: Readonly<Record<string, string>>): boolean {
  const { length } = Object.keys(properties);
  return length > 0 && length <= MAX_ZFS_PROPERTIES;
}

function zfsOf({ zfs }: TaskContext): Zfs {
  if (zfs !== undefined) return zfs;
  throw new TaskFailure('UnknownTask', 'This server has no ZFS: the agent found no programs zfs and zpool');
}
