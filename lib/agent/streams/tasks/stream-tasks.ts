/** The tasks that join a caller of this server over a stream. */
import type { TaskDefinitions } from '../../runner/task-definition.ts';
import { connectTask } from './connect.ts';
import { exec } from './exec.ts';

export const streamTasks = { exec, connect: connectTask } satisfies TaskDefinitions;
