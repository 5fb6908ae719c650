/**
 * What the tasks subsystem needs of the agent link, and all it knows of it: the live sessions of this instance whose
 * inventory has been taken. Implemented by `lib/agents/registry.ts`.
 */
import type { TaskAckFrame, TaskCancelFrame, TaskFrame } from '../wire/frames.ts';

export interface TaskSession {
  readonly serverUuid: string;
  /** The roster's epoch under which the session was accepted. */
  readonly epoch: number;
  readonly journalId: string;
  /** As the agent's hello had them, e.g. `task:nop`. */
  readonly capabilities: ReadonlySet<string>;
  /** Queues the frame; false when the session is closed or its peer does not take bytes any more. */
  send(frame: TaskFrame | TaskAckFrame | TaskCancelFrame): boolean;
}

export interface TaskSessions {
  /** This instance's run now; it changes when the instance found itself declared dead. */
  run(): string;
  /** The server's session that has given its inventory, if this instance holds one. */
  get(serverUuid: string): TaskSession | undefined;
  all(): Iterable<TaskSession>;
}
