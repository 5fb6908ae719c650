import type { AgentFrame } from '../wire/frames.ts';

/** Where frames go: to whoever gave the task, or the newest session of that kind. */
export interface Outbox {
  readonly maxFrameBytes: number;
  /** True while what is said of the task would be taken without piling up. */
  hasRoomFor(taskId: string): boolean;
  /** False when there is nobody to hear it. */
  send(frame: AgentFrame): boolean;
}
