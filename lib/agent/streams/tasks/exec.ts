/**
 * `exec {stream, script, args?, env?, terminal?}` → `{exitCode, signal}`. A command whose input and
 * output is a stream; the agent joins it first.
 */
import { z } from 'zod';
import { MAX_COMMAND_ARGS } from '../../../protocol/limits.ts';
import { streamPlace, terminal } from '../../../protocol/streams/stream.ts';
import { environment, MAX_WORD_CHARS, withoutNul } from '../../machine/environment.ts';
import { defineTask } from '../../runner/task-definition.ts';
import { runOnStream } from '../run-on-stream.ts';
import { runStreamed } from '../run-streamed.ts';

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
