/** Failures with which the runner itself ends an attempt. Pure. */
import type { TaskFrame } from '../../protocol/link/frames.ts';
import { TaskFailure } from '../task-failure.ts';
import type { ActiveTask } from './active-task.ts';

export const cancelled = () => new TaskFailure('Cancelled', 'The task was cancelled');

/**
 * A task that had started gets another code, because callers may treat `TaskTimeout` as work that
 * was done.
 */
export const timedOut = ({ hasStarted }: Pick<ActiveTask, 'hasStarted'>, timeoutMs: number) =>
  hasStarted
    ? new TaskFailure('TaskTimeout', `The task did not end within ${timeoutMs / 1000} s`)
    : new TaskFailure(
        'NotTaken',
        `The task did not start within ${timeoutMs / 1000} s, because it waited for other tasks of its server`,
      );

export const unknownTask = ({ name }: TaskFrame) => new TaskFailure('UnknownTask', `Unknown task, '${name}'`);

export const tooDeep = () => new TaskFailure('InvalidParameters', 'The parameters are nested too deep');

/** The message begins with that of Triton's agent. */
export const agentPaused = (reason: string) =>
  new TaskFailure('AgentPaused', `CN Agent is not accepting tasks for maintenance: ${reason}`);

export const notDrained = (reason: string) =>
  new TaskFailure('NotDrained', `The server is not drained for this job any more: ${reason}. Begin the job again`);

export const agentFull = () => new TaskFailure('AgentFull', 'The agent holds as many tasks as it can; try again later');

export const alreadyEnded = () =>
  new TaskFailure('TaskAlreadyEnded', 'This agent has already reported an end of this task');
