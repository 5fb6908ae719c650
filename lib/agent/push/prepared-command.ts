/** Makes the command that a push_prepare frame asks for. Pure. */

import { withoutUndefined } from '../../platform/defined-fields.ts';
import { MAX_PUSH_FILE_BYTES } from '../../protocol/limits.ts';
import type { PushPrepareFrame } from '../../protocol/link/frames.ts';
import { environment } from '../machine/environment.ts';
import type { Command } from '../machine/machine.ts';
import { TaskFailure } from '../task-failure.ts';

/** @throws TaskFailure with a sentence about the option that is wrong */
export function prepareCommand({ command, env = {}, user, dir, file }: PushPrepareFrame): Command {
  return {
    script: command,
    args: [],
    env: environmentIn(env),
    ...withoutUndefined({ user, directory: dir }),
    ...(file === undefined ? {} : { file: fileIn(file) }),
  };
}

function environmentIn(env: Record<string, unknown>): Record<string, string> {
  const parsed = environment.safeParse(env);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0];
  const name = issue?.path[0];
  const variable = name === undefined ? '' : ` of ${JSON.stringify(String(name).slice(0, 100))}`;
  const nested = issue?.code === 'invalid_key' ? issue.issues[0]?.message : issue?.message;
  throw wrong(`the environment${variable} cannot be used: ${nested}`);
}

function fileIn(base64: string): Buffer {
  const bytes = Buffer.from(base64, 'base64');
  if (bytes.toString('base64') !== base64) throw wrong('the file is not valid base64');
  if (bytes.length > MAX_PUSH_FILE_BYTES)
    throw wrong(`the file has ${bytes.length} bytes, more than ${MAX_PUSH_FILE_BYTES}`);
  return bytes;
}

const wrong = (message: string) => new TaskFailure('InvalidParameters', message);
