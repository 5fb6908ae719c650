/** The names of tasks, by who knows them. */
import type { PUSH_TASK } from './push.ts';
import type { RECOVERY_TASK } from './recovery.ts';
import type { TASK_KINDS } from './tasks.ts';

/**
 * A task whose work has a stream of its caller. streams/stream.ts has the routes that create it.
 */
export type StreamTaskName = 'exec' | 'connect' | 'vm_exec' | 'vm_logs' | 'vm_console' | 'vm_connect' | 'vm_stats';

/**
 * A task of this project's agents: callers may create it, or only routes and jobs of its own do.
 */
export type TaskName = keyof typeof TASK_KINDS | typeof PUSH_TASK | typeof RECOVERY_TASK | StreamTaskName;

/** A task that only agents of Triton know. */
export type LegacyTaskName = 'machine_migrate' | 'docker_exec' | 'docker_copy' | 'docker_stats' | 'docker_build';

declare const named: unique symbol;

/**
 * A name that a caller has chosen, and that is not reserved. Whether the agent knows it is not
 * checked.
 */
export type CallerTaskName = string & { readonly [named]: 'by a caller' };
