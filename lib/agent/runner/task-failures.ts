/** Failures with which the runner itself ends an attempt. Pure. */
import type { TaskFrame } from '../../protocol/link/frames.ts';
import { TaskFailure } from '../task-failure.ts';

export const cancelled = () => new TaskFailure('Cancelled', 'The task was cancelled');

export const taskTimeout = (timeoutMs: number) =>
  new TaskFailure('TaskTimeout', `The task did not end within ${timeoutMs / 1000} s`);

export const unknownTask = ({ name }: TaskFrame) => new TaskFailure('UnknownTask', `Unknown task, '${name}'`);

export const tooDeep = () => new TaskFailure('InvalidParameters', 'The parameters are nested too deep');

/** The message is that of Triton's agent. */
export const agentPaused = () => new TaskFailure('AgentPaused', 'CN Agent is not accepting tasks for maintenance');

export const agentFull = () => new TaskFailure('AgentFull', 'The agent holds as many tasks as it can; try again later');

export const alreadyEnded = () =>
  new TaskFailure('TaskAlreadyEnded', 'This agent has already reported an end of this task');
