/**
 * The tasks this agent knows, by the name in a task frame; those of VMs, images, ZFS and streams
 * only if it has them. lib/protocol/tasks.ts holds what agents and instances both know of them.
 */
import { PUSH_CAPABILITY, PUSH_TASK, PUSH_TIMEOUT_CAPABILITY } from '../../protocol/push.ts';
import { RECOVERY_TASK } from '../../protocol/recovery.ts';
import {
  CONNECT_TASK,
  EXEC_TASK,
  VM_CONNECT_TASK,
  VM_CONSOLE_TASK,
  VM_EXEC_TASK,
  VM_LOGS_TASK,
  VM_STATS_TASK,
} from '../../protocol/streams/stream.ts';
import { taskCapability } from '../../protocol/tasks.ts';
import { agentInstall, agentsUninstall } from './agent-packages.ts';
import { agentPause, agentResume } from './agent-pause.ts';
import { commandExecute } from './command-execute.ts';
import { connectTask } from './connect.ts';
import { exec } from './exec.ts';
import { imageTasks } from './image-tasks.ts';
import { nop } from './nop.ts';
import { pushCommand } from './push-command.ts';
import { recoveryConfig } from './recovery-config.ts';
import { serverFactoryReset } from './server-factory-reset.ts';
import { serverReboot } from './server-reboot.ts';
import { serverSetup } from './server-setup.ts';
import { serverSysinfo } from './server-sysinfo.ts';
import { serverUpdateNics } from './server-update-nics.ts';
import { sleep } from './sleep.ts';
import type { AgentServices, TaskDefinition } from './task.ts';
import { vmConnect } from './vm-connect.ts';
import { vmConsole } from './vm-console.ts';
import { vmExec } from './vm-exec.ts';
import { vmLogs } from './vm-logs.ts';
import { vmStats } from './vm-stats.ts';
import { vmTasks } from './vm-tasks.ts';
import { zfsTasks } from './zfs-tasks.ts';

export type Catalogue = ReadonlyMap<string, TaskDefinition>;

/** The tasks of an agent with these services. */
export const catalogueOf = ({ streams, vms, images, zfs, recovery, settings }: Partial<AgentServices>): Catalogue =>
  new Map([
    ...basicTasks,
    ...(streams === undefined ? [] : streamTasks),
    ...(vms === undefined ? [] : vmTasks),
    ...(streams === undefined || vms === undefined ? [] : vmStreamTasks),
    ...(images === undefined ? [] : imageTasks),
    ...(recovery === undefined ? [] : [[RECOVERY_TASK, recoveryConfig] as const]),
    ...(settings === undefined ? [] : settingsTasks),
    ...(zfs === undefined ? [] : zfsTasks),
  ]);

/** The tasks of every agent. */
const basicTasks: readonly (readonly [string, TaskDefinition])[] = [
  ['nop', nop],
  ['sleep', sleep],
  ['command_execute', commandExecute],
  [PUSH_TASK, pushCommand],
  ['server_sysinfo', serverSysinfo],
  ['server_reboot', serverReboot],
  ['agent_install', agentInstall],
  ['agents_uninstall', agentsUninstall],
  ['agent_pause', agentPause],
  ['agent_resume', agentResume],
];

const settingsTasks: readonly (readonly [string, TaskDefinition])[] = [
  ['server_setup', serverSetup],
  ['server_factory_reset', serverFactoryReset],
  ['server_update_nics', serverUpdateNics],
];

const streamTasks: readonly (readonly [string, TaskDefinition])[] = [
  [EXEC_TASK, exec],
  [CONNECT_TASK, connectTask],
];

const vmStreamTasks: readonly (readonly [string, TaskDefinition])[] = [
  [VM_EXEC_TASK, vmExec],
  [VM_LOGS_TASK, vmLogs],
  [VM_CONSOLE_TASK, vmConsole],
  [VM_CONNECT_TASK, vmConnect],
  [VM_STATS_TASK, vmStats],
];

/** The agent's capabilities for the greeting. */
export const capabilitiesOf = (tasks: Catalogue): string[] => [
  ...Array.from(tasks.keys(), taskCapability),
  ...(tasks.has(PUSH_TASK) ? [PUSH_CAPABILITY, PUSH_TIMEOUT_CAPABILITY] : []),
];
