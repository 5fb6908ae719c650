import type { TaskFrame } from '../../protocol/link/frames.ts';
import type { TaskDefinition } from './task-definition.ts';
import type { TimeLimit } from './time-limit.ts';

/** What the runner knows of a task that it has not ended yet. */
export interface ActiveTask {
  frame: TaskFrame;
  task: TaskDefinition;
  phase: 'accepting' | 'queued' | 'running' | 'ending';
  /** The acceptance is on disk. */
  isAccepted: boolean;
  /** Whether the task's work has begun, in this process or in a former one. */
  hasStarted: boolean;
  abort: AbortController;
  timer: TimeLimit;
  /** The task's place in a lane. */
  place: { leave(): void } | undefined;
  /** Settles when nothing of the task runs any more. */
  run: Promise<void> | undefined;
}
