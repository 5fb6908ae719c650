/**
 * The tasks that agents of a fleet know, with the one fact that both ends need: whether a task may
 * run again when its outcome is unknown. The agent's catalogue (`lib/agent/catalogue.ts`) lists
 * what carries out each task. An agent's capabilities name its tasks as `task:<name>`.
 */
import type { TaskKind } from './task-kind.ts';
import { VM_TASK_KINDS } from './vm-task-kinds.ts';
import { ZFS_TASK_KINDS } from './zfs-task-kinds.ts';

export const TASK_KINDS = {
  nop: {
    idempotent: true,
    params: { sleep: 'seconds to wait, at most 86400', error: 'a text: the task fails with it' },
  },
  sleep: { idempotent: true, params: { timeout: 'required, milliseconds, at most 86400000' } },
  command_execute: {
    idempotent: false,
    params: {
      script: 'required, a text: sh runs it, or the interpreter that its first line names',
      args: 'a list of texts, its arguments',
      env: 'an object of texts, its environment variables',
      timeout: 'milliseconds, then it is killed',
      paced: 'true: it writes no faster than its output is followed',
    },
  },
  server_sysinfo: { idempotent: true, params: {} },
  server_reboot: { idempotent: false, params: { drain: 'only if the server is drained for this job' } },
  server_setup: {
    idempotent: false,
    params: {
      hostname: 'the name that the server is given',
      postsetup_script: 'a text: sh runs it, or the interpreter that its first line names',
      nics: 'a list of objects with mac and nic_tags_provided, the NIC tags',
    },
  },
  server_factory_reset: { idempotent: false, params: { drain: 'required, the job for which the server is drained' } },
  server_update_nics: {
    idempotent: true,
    params: {
      nics: 'required, a list of objects with mac and nic_tags_provided, the NIC tags',
      action: 'what becomes of the tags that each NIC has: replace (default), update (adds), delete (removes)',
    },
  },
  agent_pause: {
    idempotent: true,
    params: {
      drain: 'the pause belongs to this job, and stays when the agent restarts',
      lease: 'with drain: milliseconds after which it ends by itself; at most 86400000, which is the default',
    },
  },
  agent_resume: { idempotent: true, params: { drain: 'only the pause of this job ends' } },
  agent_install: {
    idempotent: true,
    params: {
      package_file: 'required, where the signed package is, http:, https: or file:, which the agent must allow',
      package_name: 'the name that the package must have',
      downgrade: 'true: also a version older than the installed one',
      retry: 'true: also a version of the agent that was rolled back',
    },
  },
  agents_uninstall: { idempotent: true, params: { agents: 'required, a list of names of packages' } },
  image_ensure_present: {
    idempotent: true,
    params: {
      image_uuid: 'required, of the image',
      url: 'where its archive is, http:, https: or file:, which the agent must allow; without it the image must be there',
      digest: 'sha256: and 64 hexadecimal digits, of the archive',
    },
  },
  image_list: { idempotent: true, params: {} },
  image_get: { idempotent: true, params: { uuid: 'required, of the image' } },
  image_delete: { idempotent: true, params: { uuid: 'required, of an image that no VM uses' } },
  ...VM_TASK_KINDS,
  ...ZFS_TASK_KINDS,
} satisfies Readonly<Record<string, TaskKind>>;

const kinds: Readonly<Record<string, TaskKind>> = TASK_KINDS;

/** The tasks and their parameters in one sentence, for the description of the API. */
export const TASKS_TEXT = Object.entries(kinds)
  .map(([name, { params }]) => {
    const each = Object.entries(params).map(([param, text]) => `\`${param}\`: ${text}`);
    return `\`${name}\`${each.length === 0 ? '' : ` (${each.join('; ')})`}`;
  })
  .join(', ');

/** Returns the kind of a task; a task that is not in the list is not idempotent. */
export function taskKind(name: string): TaskKind {
  return (Object.hasOwn(kinds, name) ? kinds[name] : undefined) ?? { idempotent: false, params: {} };
}

/**
 * The capability of an instance that answers an inventory with held tasks (`inventory_settled`).
 */
export const SETTLED_CAPABILITY = 'inventory-settled';

export const taskCapability = (name: string): string => `task:${name}`;
