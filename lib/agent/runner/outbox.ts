import type { AgentFrame } from '../../protocol/link/frames.ts';

/** Where frames about tasks go: to the caller that posted the task, or to the newest session. */
export interface Outbox {
  readonly maxFrameBytes: number;
  /** True while frames about the task are taken without piling up. */
  hasRoomFor(taskId: string): boolean;
  /** False when there is no receiver. */
  send(frame: AgentFrame): boolean;
}
