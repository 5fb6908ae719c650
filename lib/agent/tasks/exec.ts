/**
 * `exec {stream, script, args?, env?, terminal?}` → `{exitCode, signal}`. A command whose input and
 * output is a stream; the agent joins it first.
 */
import { Readable, Writable } from 'node:stream';
import { z } from 'zod';
import { MAX_COMMAND_ARGS } from '../../protocol/limits.ts';
import { streamPlace, terminal } from '../../protocol/streams/stream.ts';
import { environment, MAX_WORD_CHARS, withoutNul } from '../machine/environment.ts';
import type { StreamedCommand } from '../machine/machine.ts';
import { defineTask, type TaskContext } from '../runner/task-definition.ts';
import type { JoinedStream } from '../streams/joined-stream.ts';
import { TaskFailure } from '../task-failure.ts';
import { runOnStream } from './run-on-stream.ts';

const params = z.object({
  stream: streamPlace,
  script: withoutNul.min(1, 'is empty').max(1024 * 1024),
  args: z.array(withoutNul.max(MAX_WORD_CHARS)).max(MAX_COMMAND_ARGS).default([]),
  env: environment.default({}),
  terminal: terminal.optional(),
});

export const exec = defineTask({
  lane: 'streams',
  startsItself: true,
  params,
  run({ stream: place, script, args, env, terminal }, context) {
    return runOnStream(place, context, async (stream, signal) => {
      const command = { program: { script, args }, env, terminal };
      const { killed, ...result } = await runStreamed(command, stream, { ...context, signal });
      if (killed) throw signal.reason;
      return result;
    });
  },
});

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
  { machine, id, signal, begin }: Pick<TaskContext, 'machine' | 'id' | 'signal' | 'begin'>,
) {
  if (machine.stream === undefined) throw new TaskFailure('NotSupported', 'This agent runs no commands with streams');
  const onResize: StreamedCommand['onResize'] = (receive) => stream.onResize(receive);
  return machine.stream({ ...command, streams: stream, onResize }, { id, signal, begin });
}
