/** Frames for tests. */
import type { TaskEndFrame, TaskFrame } from '../../lib/protocol/link/frames.ts';

export const taskFrame = (fields: Partial<TaskFrame> & { id: string }): TaskFrame => ({
  type: 'task',
  attempt: 1,
  epoch: 1,
  name: 'nop',
  params: {},
  timeoutMs: 60_000,
  ...fields,
});

export const ended = (id: string, fields: Partial<TaskEndFrame> = {}): TaskEndFrame => ({
  type: 'task_end',
  id,
  attempt: 1,
  outcome: 'complete',
  result: {},
  reportedAt: '2026-01-01T00:00:00.000Z',
  ...fields,
});
