/**
 * The tasks this agent knows, by the name in a task frame; those of VMs, images, ZFS and streams
 * only if it has them. lib/protocol/tasks.ts holds what agents and instances both know of them.
 */
import { PUSH_CAPABILITY, PUSH_TASK, PUSH_TIMEOUT_CAPABILITY } from '../protocol/push.ts';
import { taskCapability } from '../protocol/tasks.ts';
import { imageTasks } from './images/tasks.ts';
import { machineTasks } from './machine/tasks/machine-tasks.ts';
import { packageTasks } from './packages/tasks.ts';
import { pauseTasks } from './pause/tasks.ts';
import { pushTasks } from './push/tasks.ts';
import { recoveryTasks } from './recovery/tasks.ts';
import type { AgentServices, Catalogue, TaskDefinition } from './runner/task-definition.ts';
import { settingsTasks } from './settings/tasks/settings-tasks.ts';
import { streamTasks } from './streams/tasks/stream-tasks.ts';
import { vmStreamTasks } from './vms/tasks/vm-stream-tasks.ts';
import { vmTasks } from './vms/tasks/vm-tasks.ts';
import { zfsTasks } from './zfs/tasks.ts';

/** The tasks of an agent with these services. */
export const catalogueOf = ({ streams, vms, images, zfs, recovery, settings }: Partial<AgentServices>): Catalogue =>
  new Map<string, TaskDefinition>(
    Object.entries({
      ...machineTasks,
      ...pushTasks,
      ...packageTasks,
      ...pauseTasks,
      ...(streams && streamTasks),
      ...(vms && vmTasks),
      ...(streams && vms && vmStreamTasks),
      ...(images && imageTasks),
      ...(recovery && recoveryTasks),
      ...(settings && settingsTasks),
      ...(zfs && zfsTasks),
    }),
  );

/** The agent's capabilities for the greeting. */
export const capabilitiesOf = (tasks: Catalogue): string[] => [
  ...Array.from(tasks.keys(), taskCapability),
  ...(tasks.has(PUSH_TASK) ? [PUSH_CAPABILITY, PUSH_TIMEOUT_CAPABILITY] : []),
];
