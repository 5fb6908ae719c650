/** The tasks of ZFS, for the table in tasks.ts, with the names and parameters of Triton's agent. */
import type { TaskKind } from './task-kind.ts';

const DATASET = 'required, a file system or volume: POOL/NAME';
const SNAPSHOT = 'required, a snapshot: POOL/NAME@SNAPSHOT';

export const ZFS_TASK_KINDS = {
  zfs_list_datasets: { idempotent: true, params: { dataset: 'only this one and those below it' } },
  zfs_list_snapshots: { idempotent: true, params: { dataset: 'only those of this one' } },
  zfs_list_pools: { idempotent: true, params: {} },
  zfs_get_properties: {
    idempotent: true,
    params: { dataset: 'only of this one', properties: 'a list of names; all when absent' },
  },
  zfs_set_properties: { idempotent: true, params: { dataset: DATASET, properties: 'required, an object of texts' } },
  zfs_create_dataset: { idempotent: false, params: { dataset: DATASET } },
  zfs_destroy_dataset: {
    idempotent: false,
    params: { dataset: 'required, a file system or volume without any below it, or a snapshot' },
  },
  zfs_snapshot_dataset: { idempotent: false, params: { dataset: SNAPSHOT } },
  zfs_rollback_dataset: { idempotent: true, params: { dataset: SNAPSHOT } },
  zfs_rename_dataset: { idempotent: false, params: { dataset: DATASET, newname: DATASET } },
  zfs_clone_dataset: { idempotent: false, params: { snapshot: SNAPSHOT, dataset: DATASET } },
} satisfies Readonly<Record<string, TaskKind>>;
