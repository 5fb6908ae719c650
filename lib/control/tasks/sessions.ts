/**
 * Everything that the tasks subsystem needs and knows of the agent link: this instance's live
 * sessions whose inventory has arrived. Implemented by `lib/control/link/inventoried-sessions.ts`.
 */
import type { InventorySettledFrame, TaskAckFrame, TaskCancelFrame, TaskFrame } from '../../protocol/link/frames.ts';

export interface TaskSession {
  readonly serverUuid: string;
  /** The roster's epoch under which the session was accepted. */
  readonly epoch: number;
  readonly journalId: string;
  /** Capabilities in the agent's hello, for example `task:nop`. */
  readonly capabilities: ReadonlySet<string>;
  /** Much of what was sent has not left this instance yet. */
  readonly isBackedUp: boolean;
  readonly unsentBytes: number;
  /** Queues the frame; false if the session is closed or its peer has stopped reading. */
  send(frame: TaskFrame | TaskAckFrame | TaskCancelFrame | InventorySettledFrame): boolean;
}

export interface TaskSessions {
  /** This instance's current run. It changes when the instance finds that it was declared dead. */
  run(): string;
  /** Agents have so much unread that no task may be sent now. */
  readonly isFull: boolean;
  /** The server's session, if this instance holds one and its inventory has arrived. */
  get(serverUuid: string): TaskSession | undefined;
}
