/** Messages of the roster to the run that acts for a server (`run-topic.ts`). */
import type { BusMessage } from '../../platform/bus/bus.ts';

export type RunMessage =
  /**
   * The server's row has a higher epoch or was removed. The receiver compares its session with it.
   */
  | { kind: 'roster'; server_uuid: string; epoch: number }
  /**
   * Answer on `reply` only if the session of this epoch answers a probe sent after this message.
   */
  | { kind: 'probe'; server_uuid: string; epoch: number; reply: string };

/** Undefined for any other message. */
export function parseRunMessage({ kind, server_uuid, epoch, reply }: BusMessage): RunMessage | undefined {
  if (typeof server_uuid !== 'string' || typeof epoch !== 'number') return undefined;
  if (kind === 'roster') return { kind, server_uuid, epoch };
  return kind === 'probe' && typeof reply === 'string' ? { kind, server_uuid, epoch, reply } : undefined;
}
