/**
 * The tasks this agent knows, by the name in a task frame; those of VMs, images, ZFS and streams
 * only if it has them. lib/protocol/tasks.ts holds what agents and instances both know of them.
 */
import { PUSH_CAPABILITY, PUSH_TASK, PUSH_TIMEOUT_CAPABILITY } from '../protocol/push.ts';
import { RECOVERY_TASK } from '../protocol/recovery.ts';
import {
  CONNECT_TASK,
  EXEC_TASK,
  VM_CONNECT_TASK,
  VM_CONSOLE_TASK,
  VM_EXEC_TASK,
  VM_LOGS_TASK,
  VM_STATS_TASK,
} from '../protocol/streams/stream.ts';
import { taskCapability } from '../protocol/tasks.ts';
import { imageTasks } from './images/tasks.ts';
import { commandExecute } from './machine/tasks/command-execute.ts';
import { nop } from './machine/tasks/nop.ts';
import { serverReboot } from './machine/tasks/server-reboot.ts';
import { serverSysinfo } from './machine/tasks/server-sysinfo.ts';
import { sleep } from './machine/tasks/sleep.ts';
import { agentInstall, agentsUninstall } from './packages/tasks.ts';
import { agentPause, agentResume } from './pause/tasks.ts';
import { pushCommand } from './push/tasks.ts';
import { recoveryConfig } from './recovery/tasks.ts';
import type { AgentServices, Catalogue, TaskDefinitions } from './runner/task-definition.ts';
import { serverFactoryReset } from './settings/tasks/server-factory-reset.ts';
import { serverSetup } from './settings/tasks/server-setup.ts';
import { serverUpdateNics } from './settings/tasks/server-update-nics.ts';
import { connectTask } from './streams/tasks/connect.ts';
import { exec } from './streams/tasks/exec.ts';
import { vmConnect } from './vms/tasks/vm-connect.ts';
import { vmConsole } from './vms/tasks/vm-console.ts';
import { vmExec } from './vms/tasks/vm-exec.ts';
import { vmLogs } from './vms/tasks/vm-logs.ts';
import { vmStats } from './vms/tasks/vm-stats.ts';
import { vmTasks } from './vms/tasks/vm-tasks.ts';
import { zfsTasks } from './zfs/tasks.ts';

/** The tasks of an agent with these services. */
export const catalogueOf = ({ streams, vms, images, zfs, recovery, settings }: Partial<AgentServices>): Catalogue =>
  new Map(
    Object.entries({
      ...basicTasks,
      ...(streams && streamTasks),
      ...(vms && vmTasks),
      ...(streams && vms && vmStreamTasks),
      ...(images && imageTasks),
      ...(recovery && { [RECOVERY_TASK]: recoveryConfig }),
      ...(settings && settingsTasks),
      ...(zfs && zfsTasks),
    }),
  );

/** The tasks of every agent. */
const basicTasks: TaskDefinitions = {
  nop,
  sleep,
  command_execute: commandExecute,
  [PUSH_TASK]: pushCommand,
  server_sysinfo: serverSysinfo,
  server_reboot: serverReboot,
  agent_install: agentInstall,
  agents_uninstall: agentsUninstall,
  agent_pause: agentPause,
  agent_resume: agentResume,
};

const settingsTasks: TaskDefinitions = {
  server_setup: serverSetup,
  server_factory_reset: serverFactoryReset,
  server_update_nics: serverUpdateNics,
};

const streamTasks: TaskDefinitions = {
  [EXEC_TASK]: exec,
  [CONNECT_TASK]: connectTask,
};

const vmStreamTasks: TaskDefinitions = {
  [VM_EXEC_TASK]: vmExec,
  [VM_LOGS_TASK]: vmLogs,
  [VM_CONSOLE_TASK]: vmConsole,
  [VM_CONNECT_TASK]: vmConnect,
  [VM_STATS_TASK]: vmStats,
};

/** The agent's capabilities for the greeting. */
export const capabilitiesOf = (tasks: Catalogue): string[] => [
  ...Array.from(tasks.keys(), taskCapability),
  ...(tasks.has(PUSH_TASK) ? [PUSH_CAPABILITY, PUSH_TIMEOUT_CAPABILITY] : []),
];
