/**
 * `exec {stream, script, args?, env?, terminal?}` → `{exitCode, signal}`. A command whose input and
 * output is a stream; the agent joins it first. When the stream breaks, the command is ended as at
 * a cancel: nobody can see any more what it does.
 */
import { z } from 'zod';
import { MAX_COMMAND_ARGS } from '../../protocol/limits.ts';
import { streamPlace, terminal } from '../../protocol/streams/stream.ts';
import { environment, MAX_WORD_CHARS, withoutNul } from '../machine/environment.ts';
import { TaskFailure } from '../task-failure.ts';
import { defineTask } from './task.ts';

const params = z.object({
  stream: streamPlace,
  script: withoutNul.min(1, 'is empty').max(1024 * 1024),
  args: z.array(withoutNul.max(MAX_WORD_CHARS)).max(MAX_COMMAND_ARGS).default([]),
  env: environment.default({}),
  terminal: terminal.optional(),
});

export const exec = defineTask({
  lane: 'streams',
  gated: true,
  params,
  async run({ stream: place, script, args, env, terminal }, { id, clock, signal, machine, streams, begin }) {
    if (streams === undefined || machine.stream === undefined)
      throw new TaskFailure('NotSupported', 'This agent opens no streams');
    const stream = await streams.join(place);
    const own = new AbortController();
    stream.lost.addEventListener('abort', () => own.abort(lost(stream.lost.reason)));
    try {
      const command = {
        script,
        args,
        env,
        terminal,
        streams: stream,
        onResize: (receive: NonNullable<typeof stream.onResize>) => {
          stream.onResize = receive;
        },
      };
      const both = AbortSignal.any([signal, own.signal]);
      const { killed, ...result } = await machine.stream(command, { id, signal: both, begin });
      if (killed) throw both.reason;
      await stream.end({ exit_code: result.exitCode, signal: result.signal }, { clock, signal });
      return result;
    } catch (error) {
      const { code, message } = error instanceof TaskFailure ? error : new TaskFailure('Failed', String(error));
      if (!stream.lost.aborted) await stream.end({ error: { code, message } }, { clock, signal: AbortSignal.abort() });
      throw error;
    }
  },
});

const lost = (reason: string) =>
  new TaskFailure('StreamLost', `The stream of the command broke, and the command was ended: ${reason}`);
