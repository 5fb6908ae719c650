/** Commands with the stream of a caller as their input and output. Used by `exec` and `vm_exec`. */
import { Readable, Writable } from 'node:stream';
import type { CommandRun, Machine, StreamedCommand, StreamedResult } from '../machine/machine.ts';
import { TaskFailure } from '../task-failure.ts';
import type { JoinedStream } from './joined-stream.ts';

/** What a command reads, writes and learns of its terminal. */
export type ExecStream = Pick<JoinedStream, 'stdin' | 'stdout' | 'stderr' | 'onResize'>;

/** The stream of a command that reads nothing. Discards its output. */
export function discardingStream(): ExecStream {
  const drop = () => new Writable({ write: (_chunk, _encoding, done) => done() });
  return { stdin: Readable.from([]), stdout: drop(), stderr: drop(), onResize: () => undefined };
}

/** Runs a command on this machine with the stream as its input and output. */
export async function runStreamed(
  command: Omit<StreamedCommand, 'streams' | 'onResize'>,
  stream: ExecStream,
  { machine, id, signal, begin }: Omit<CommandRun, 'output'> & { machine: Pick<Machine, 'stream'> },
): Promise<StreamedResult> {
  if (machine.stream === undefined) throw new TaskFailure('NotSupported', 'This agent runs no commands with streams');
  const onResize: StreamedCommand['onResize'] = (receive) => stream.onResize(receive);
  return machine.stream({ ...command, streams: stream, onResize }, { id, signal, begin });
}
