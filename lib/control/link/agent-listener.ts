/**
 * Receives the frames that agents send about a noun. The link parses them (`codec.ts`) and passes
 * each to its listener. The connection answers heartbeats itself, so they do not come here.
 */
import type { InventoryFrame, SessionFrame } from '../../protocol/link/frames.ts';
import type { TaskSession } from '../tasks/sessions.ts';

/** The session of an agent, as listeners see it; always the same object for the same session. */
interface AgentSession extends TaskSession {
  /** The process of the agent. */
  readonly incarnation: string;
}

/** Sysinfo is not dispatched: the link server stores it. */
type NounFrame = Exclude<SessionFrame, { type: 'sysinfo' }>;

type ByType = { [Frame in NounFrame as Frame['type']]: Frame };

/** Handlers by the type of the frame. `size`: characters of the frame. */
type FrameHandlers = { [Type in keyof ByType]?: (session: AgentSession, frame: ByType[Type], size: number) => void };

export interface AgentListener {
  /** The session of this server began, and its inventory has arrived. */
  onSessionBegan?(session: AgentSession, inventory: InventoryFrame): void;
  frames?: FrameHandlers;
}

interface Received<Frame> {
  session: AgentSession;
  frame: Frame;
  size: number;
}

export function dispatchFrame(listeners: readonly AgentListener[], received: Received<NounFrame>): void {
  for (const { frames } of listeners) if (frames !== undefined) handle(frames, received.frame.type, received);
}

/** A type parameter, so that the compiler knows that the handler and the frame belong together. */
function handle<Type extends keyof ByType>(
  handlers: FrameHandlers,
  type: Type,
  { session, frame, size }: Received<NounFrame>,
): void {
  handlers[type]?.(session, frame as ByType[Type], size);
}
