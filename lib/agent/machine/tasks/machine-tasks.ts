/** The tasks of every agent that need only its machine. */
import type { TaskDefinitions } from '../../runner/task-definition.ts';
import { commandExecute } from './command-execute.ts';
import { nop } from './nop.ts';
import { serverReboot } from './server-reboot.ts';
import { serverSysinfo } from './server-sysinfo.ts';
import { sleep } from './sleep.ts';

export const machineTasks = {
  nop,
  sleep,
  command_execute: commandExecute,
  server_sysinfo: serverSysinfo,
  server_reboot: serverReboot,
} satisfies TaskDefinitions;
