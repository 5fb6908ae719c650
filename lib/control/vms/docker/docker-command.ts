/**
 * What a caller of `docker-exec` asks for, as sdc-docker and cloudapi say it, and the task of this
 * project's agents for it. Pure.
 */

import { z } from 'zod';
import { invalidParameter } from '../../../platform/errors.ts';
import { MAX_COMMAND_ARGS } from '../../../protocol/limits.ts';
import { VM_EXEC_TASK, VM_LOGS_TASK } from '../../../protocol/streams/stream.ts';
import type { StreamTaskName } from '../../../protocol/task-name.ts';

const MAX_VARIABLES = 100;
/** A terminal before the client reports its size. */
const TERMINAL = { type: 'xterm', columns: 80, rows: 24 };

const isSet = z.boolean().nullish();
const words = z.array(z.string());
const dockerCommand = z.object({
  Cmd: words.max(MAX_COMMAND_ARGS).optional(),
  Env: words.max(MAX_VARIABLES).nullish(),
  AttachStdin: isSet,
  AttachConsole: isSet,
  Tty: isSet,
  Detach: isSet,
  Privileged: isSet,
  User: z.string().nullish(),
  WorkingDir: z.string().nullish(),
  Logs: isSet,
  Follow: isSet,
  Timestamps: isSet,
  Tail: z.union([z.literal('all'), z.coerce.number().int().min(0)]).nullish(),
});
type DockerCommand = z.infer<typeof dockerCommand>;

export interface DockerExec {
  task: StreamTaskName;
  /** Parameters of the task, without the VM and the stream. */
  params: Record<string, unknown>;
  /** The client does not connect to a stream, so the answer is empty. */
  isDetached: boolean;
  isTty: boolean;
  hasInput: boolean;
  hasExitCode: boolean;
}

/** What these agents cannot do; undefined for a command that they can carry out. */
export function unsupportedPart(command: Readonly<Record<string, unknown>>): string | undefined {
  const { AttachConsole, Privileged, User, WorkingDir, Logs, Timestamps } = parse(command);
  if (AttachConsole) return 'AttachConsole (attaching to the program of the VM)';
  if (Logs) return Timestamps ? 'Timestamps (times in front of the lines of a log)' : undefined;
  if (Privileged) return 'Privileged';
  if (User) return 'User (running a program as another user than that of the VM)';
  return WorkingDir ? 'WorkingDir (running a program in another directory than that of the VM)' : undefined;
}

/** @throws InvalidParametersError */
export function dockerExecOf(given: Readonly<Record<string, unknown>>): DockerExec {
  const command = parse(given);
  return command.Logs ? logsOf(command) : parseProgram(command);
}

function logsOf({ Follow, Tail }: DockerCommand): DockerExec {
  const isWhole = Tail === 'all' || Tail == null;
  const params = { follow: Follow === true, ...(isWhole ? {} : { tail: Tail }) };
  return { task: VM_LOGS_TASK, params, isDetached: false, isTty: false, hasInput: false, hasExitCode: false };
}

function parseProgram({ Cmd: args = [], Env, AttachStdin, Tty, Detach }: DockerCommand): DockerExec {
  if (args.length === 0) throw invalidParameter('command.Cmd', 'value is empty');
  if ([...args, ...(Env ?? [])].some((word) => word.includes('\0')))
    throw invalidParameter('command', 'a word holds a NUL character');
  const isDetached = Detach === true;
  const hasInput = AttachStdin === true && !isDetached;
  const isTty = Tty === true;
  // The reference also starts no terminal for a command without input, although it labels the
  // output `tty`.
  const params = {
    args,
    ...(Env && { env: parseVariableLines(Env) }),
    ...(hasInput && isTty && { terminal: TERMINAL }),
  };
  return { task: VM_EXEC_TASK, params, isDetached, isTty, hasInput, hasExitCode: true };
}

/** `NAME=value`; Docker takes a name alone for one whose value is empty. */
function parseVariableLines(lines: readonly string[]): Record<string, string> {
  return Object.fromEntries(
    lines.map((line) => {
      const end = line.indexOf('=');
      return end < 0 ? [line, ''] : [line.slice(0, end), line.slice(end + 1)];
    }),
  );
}

function parse(command: Readonly<Record<string, unknown>>): DockerCommand {
  const parsed = dockerCommand.safeParse(command);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0];
  throw invalidParameter(['command', ...(issue?.path ?? [])].join('.'), issue?.message ?? 'is not valid');
}
