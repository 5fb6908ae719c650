/**
 * The names of the tasks a fleet's agents know, as both ends need them: whether a task may be run again when nobody
 * can tell whether it ran. The agent's own catalogue (`lib/cn-agent/tasks`) holds what each one does.
 * An agent's capabilities name its tasks as `task:<name>`.
 */
export interface TaskKind {
  /** May be run again after an unknown outcome, with the same effect as once. */
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

/** The kind of a task; one that is not in the list counts as not idempotent. */
export function taskKind(name: string): TaskKind {
  return Object.hasOwn(KINDS, name) ? (KINDS[name] as TaskKind) : { idempotent: false };
}

export const taskCapability = (name: string): string => `task:${name}`;
