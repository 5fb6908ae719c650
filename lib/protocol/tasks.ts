/**
 * The tasks that agents of a fleet know, with the one fact that both ends need: whether a task may
 * run again when its outcome is unknown. The agent's catalogue (`lib/agent/tasks`) defines what
 * each task does. An agent's capabilities name its tasks as `task:<name>`.
 */
export interface TaskKind {
  /** Running the task again after an unknown outcome has the same effect as running it once. */
  idempotent: boolean;
}

const KINDS: Record<string, TaskKind> = {
  nop: { idempotent: true },
  sleep: { idempotent: true },
  command_execute: { idempotent: false },
  server_sysinfo: { idempotent: true },
  server_reboot: { idempotent: false },
  agent_pause: { idempotent: true },
  agent_resume: { idempotent: true },
};

/** Returns the kind of a task; a task that is not in the list is not idempotent. */
export function taskKind(name: string): TaskKind {
  return Object.hasOwn(KINDS, name) ? (KINDS[name] as TaskKind) : { idempotent: false };
}

export const taskCapability = (name: string): string => `task:${name}`;
