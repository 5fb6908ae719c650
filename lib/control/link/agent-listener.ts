/**
 * What agents say about a noun that has frames of its own. The link parses them (`codec.ts`) and
 * passes each to those who listen for it.
 */
import type { SessionFrame } from '../../protocol/frames.ts';
import type { Session } from '../roster/sessions/session.ts';

/** Every frame of a session except those of tasks and servers, which the link knows itself. */
type NounFrame = Exclude<SessionFrame, { type: 'task_event' | 'task_end' | 'sysinfo' | 'status' }>;

type ByType = { [Frame in NounFrame as Frame['type']]: Frame };

/** Handlers by the type of the frame. */
type FrameHandlers = { [Type in keyof ByType]?: (session: Session, frame: ByType[Type]) => void };

export interface AgentListener {
  /** The session of this server began, and its inventory has arrived. */
  sessionBegan?(serverUuid: string): void;
  frames?: FrameHandlers;
}

export function dispatchFrame(listeners: readonly AgentListener[], session: Session, frame: NounFrame): void {
  for (const { frames = {} } of listeners) handle(frames, frame.type, session, frame);
}

/** A type parameter, so that the compiler knows that the handler and the frame belong together. */
function handle<Type extends keyof ByType>(
  handlers: FrameHandlers,
  type: Type,
  session: Session,
  frame: ByType[Type],
): void {
  handlers[type]?.(session, frame);
}
