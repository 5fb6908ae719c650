/** Work whose input and output is a stream of its caller. Used by the tasks in STREAM_TASKS. */
import type { Writable } from 'node:stream';
import { CnapiError } from '../../platform/errors.ts';
import type { Clock } from '../../platform/time/clock.ts';
import type { StreamPlace } from '../../protocol/streams/stream.ts';
import { TaskFailure } from '../task-failure.ts';
import type { AgentStreams } from './agent-streams.ts';
import type { JoinedStream } from './joined-stream.ts';

/** How work ends that is not a command: without an exit code. */
interface StreamedEnd {
  exitCode?: number | null;
  signal?: string | null;
  /** More of the task's result. */
  [name: string]: unknown;
}

interface Joining {
  clock: Clock;
  signal: AbortSignal;
  /** Undefined if this agent opens none. */
  streams?: AgentStreams | undefined;
}

/**
 * Joins the stream, and tells its caller how the work ended, after all output. When the stream
 * breaks, the work is ended as at a cancel: nobody can see any more what it does. The signal that
 * `work` receives aborts in both cases, with the failure to end with. `lossText`: what a lost
 * stream means, for its message.
 */
export async function runOnStream<End extends StreamedEnd>(
  place: StreamPlace,
  { clock, signal, streams }: Joining,
  work: (stream: JoinedStream, signal: AbortSignal) => Promise<End>,
  lossText = 'The stream of the command broke, and the command was ended',
): Promise<End> {
  if (streams === undefined) throw new TaskFailure('NotSupported', 'This agent opens no streams');
  const stream = await streams.join(place);
  const own = new AbortController();
  stream.lost.addEventListener('abort', () => {
    own.abort(new TaskFailure('StreamLost', `${lossText}: ${stream.lost.reason}`));
  });
  try {
    const end = await work(stream, AbortSignal.any([signal, own.signal]));
    const { exitCode = 0, signal: endedBy = null } = end;
    await stream.end({ exit_code: exitCode, signal: endedBy }, { clock, signal });
    return end;
  } catch (error) {
    const isKnown = error instanceof TaskFailure || error instanceof CnapiError;
    const { code, message } = isKnown ? error : new TaskFailure('TaskError', String(error));
    if (!stream.lost.aborted) await stream.end({ error: { code, message } }, { clock, signal });
    throw error;
  }
}

/** Resolves when the stream has taken it. */
export function written(output: Writable, bytes: Buffer): Promise<void> {
  return new Promise((resolve, reject) => {
    output.write(bytes, (error) => (error ? reject(error) : resolve()));
  });
}
