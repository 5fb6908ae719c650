/** The tasks that join a caller of a VM over a stream. */
import type { TaskDefinitions } from '../../runner/task-definition.ts';
import { vmConnect } from './vm-connect.ts';
import { vmConsole } from './vm-console.ts';
import { vmExec } from './vm-exec.ts';
import { vmLogs } from './vm-logs.ts';
import { vmStats } from './vm-stats.ts';

export const vmStreamTasks = {
  vm_exec: vmExec,
  vm_logs: vmLogs,
  vm_console: vmConsole,
  vm_connect: vmConnect,
  vm_stats: vmStats,
} satisfies TaskDefinitions;
