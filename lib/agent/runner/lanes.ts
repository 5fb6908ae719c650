/** How many tasks of each lane run concurrently. */
import { Semaphore } from '../../platform/limiting/semaphore.ts';
import type { LaneName } from './task-definition.ts';

export const PARALLEL_TASKS = 16;
/** Actions of one VM wait for each other, and those of other VMs must not wait for them. */
const VM_TASKS = 64;
const VM_QUERIES = 8;
const STREAMS = 64;
const ZFS_TASKS = 8;

export const newLanes = (): Record<LaneName, Semaphore> => ({
  serial: new Semaphore(1),
  parallel: new Semaphore(PARALLEL_TASKS),
  control: new Semaphore(1),
  vms: new Semaphore(VM_TASKS),
  'vm-queries': new Semaphore(VM_QUERIES),
  streams: new Semaphore(STREAMS),
  zfs: new Semaphore(ZFS_TASKS),
});
