/**
 * Tasks as what Ur can do, and its replies as ends of tasks. Ur runs a script or a file and replies
 * once. Everything else needs an agent. Pure.
 */

import type { JsonObject } from '../../protocol/json/bounded-json.ts';
import type { TaskName } from '../../protocol/task-name.ts';
import { failure, type PostedEnd } from '../legacy/task-answer.ts';
import { taskEnds } from '../tasks/store/task.ts';
import { parseObject } from './ur.ts';

/** The exit status of a script after which Ur reboots its server. */
export const REBOOT_STATUS = 113;
const SYSINFO_PROGRAM = '/usr/bin/sysinfo';
/** The limit for the answer of a legacy agent as well. */
const MAX_REPLY_BYTES = 4 * 1024 * 1024;

/** What Ur runs. */
interface Execution {
  message: JsonObject;
  /** How long the caller wants to wait for the reply; undefined: as long as the task may run. */
  waitMs: number | undefined;
  endOf(reply: UrReply): PostedEnd;
}

export interface UrReply {
  exitStatus: number | null;
  stdout: string;
  stderr: string;
}

export const askForSysinfo = { type: 'file', file: SYSINFO_PROGRAM };

const SYSINFO: TaskName = 'server_sysinfo';
const COMMAND: TaskName = 'command_execute';

/** Undefined: Ur cannot do it. `params` are those of a task, which the agent would check. */
export function buildExecution(name: string, params: JsonObject): Execution | undefined {
  if (name === SYSINFO) return { message: askForSysinfo, waitMs: undefined, endOf: endOfSysinfo };
  if (name !== COMMAND || typeof params.script !== 'string') return undefined;
  const { script, args, env, timeout } = params;
  return {
    message: { type: 'script', script, args: Array.isArray(args) ? args.map(String) : [], ...environment(env) },
    waitMs: typeof timeout === 'number' ? timeout : undefined,
    endOf: endOfScript,
  };
}

/** Without `env`, a script has the environment of Ur. */
function environment(env: unknown): JsonObject {
  return typeof env === 'object' && env !== null ? { env } : {};
}

export const needsAgent = (serverUuid: string, name: string): PostedEnd =>
  failure(
    'NeedsAgent',
    `Server ${serverUuid} has no agent yet: it speaks Ur, which runs scripts only (POST /servers/${serverUuid}/execute), not the task ${name}`,
  );

/** The script was sent, and no reply came. */
export const noReply = { outcome: 'failure', error: taskEnds.timedOut } as const;

/** The instance stops, or its connection was lost before the broker confirmed the script. */
export const replyLost = (reason: string): PostedEnd =>
  failure('OutcomeUnknown', `${reason}; whether the script ran is unknown`);

/** @returns why it is not a reply, if so */
export function readReply(content: Buffer): UrReply | string {
  if (content.length > MAX_REPLY_BYTES) return `it has more than ${MAX_REPLY_BYTES} bytes`;
  const parsed = parseObject(content);
  if ('defect' in parsed) return `it is ${parsed.defect}`;
  const { exit_status: exitStatus, stdout, stderr } = parsed.value;
  return {
    exitStatus: Number.isInteger(exitStatus) ? (exitStatus as number) : null,
    stdout: typeof stdout === 'string' ? stdout : '',
    stderr: typeof stderr === 'string' ? stderr : '',
  };
}

export const badReply = (reason: string): PostedEnd =>
  failure('BadAgentAnswer', `Ur's reply was not kept: ${reason}; the script ran`);

/** A reboot that the script asked for is not a failure of the script; Ur itself says 0 then. */
function endOfScript({ exitStatus, stdout, stderr }: UrReply): PostedEnd {
  const exitCode = exitStatus === REBOOT_STATUS ? 0 : exitStatus;
  return { outcome: 'complete', result: { exitCode, signal: null, stdout, stderr } };
}

function endOfSysinfo({ exitStatus, stdout }: UrReply): PostedEnd {
  if (exitStatus !== 0) return failure('Failed', `${SYSINFO_PROGRAM} ended with status ${exitStatus}`);
  const parsed = parseObject(Buffer.from(stdout));
  if ('defect' in parsed) return failure('Failed', `the output of ${SYSINFO_PROGRAM} is ${parsed.defect}`);
  return { outcome: 'complete', result: { sysinfo: parsed.value } };
}
