/**
 * One program that runs containers as the OCI specification says (runc or crun). It keeps what it
 * knows under a root of this agent, so it never sees the containers of others. A container is
 * created by its monitor (monitor.ts); everything else is asked here.
 */
import { readdir, readFile } from 'node:fs/promises';
import { messageOf } from '../../../platform/errors.ts';
import { ContainerError } from '../container-errors.ts';
import { type ProgramEnd, runToEnd } from '../linux/programs.ts';

/** The process of the container has not started, runs, or has ended. */
type OciStatus = 'creating' | 'created' | 'running' | 'paused' | 'stopped';

export interface OciRuntime {
  file: string;
  /** Before each command. */
  args: readonly string[];
  /** Where it keeps what it knows; one entry for each container. */
  root: string;
}

const COMMAND_MS = 10_000;

/** @throws ContainerError */
export async function startOci(runtime: OciRuntime, name: string, timeoutMs: number): Promise<void> {
  const end = await runToEnd(runtime.file, [...runtime.args, 'start', name], { timeoutMs });
  if (end.exitCode !== 0)
    throw new ContainerError(`Container ${name}: its program could not be started: ${reasonOfEnd(end)}`);
}

/** Ignores a container that has ended. @throws ContainerError */
export async function signalOci(runtime: OciRuntime, name: string, signal: string): Promise<void> {
  const end = await runToEnd(runtime.file, [...runtime.args, 'kill', name, signal], { timeoutMs: COMMAND_MS });
  if (end.exitCode === 0) return;
  const status = await statusOfOci(runtime, name);
  if (status === undefined || status === 'stopped') return;
  throw new ContainerError(`Container ${name}: ${signal} could not be sent: ${reasonOfEnd(end)}`);
}

/** Pauses or resumes the processes of a container. @throws ContainerError */
export async function freezeOci(runtime: OciRuntime, name: string, command: 'pause' | 'resume'): Promise<void> {
  const end = await runToEnd(runtime.file, [...runtime.args, command, name], { timeoutMs: COMMAND_MS });
  if (end.exitCode !== 0)
    throw new ContainerError(`Container ${name}: ${command} of its processes failed: ${reasonOfEnd(end)}`);
}

/** @param file with `linux.resources` of the OCI specification @throws ContainerError */
export async function limitOci(runtime: OciRuntime, name: string, file: string): Promise<void> {
  const args = [...runtime.args, 'update', '--resources', file, name];
  const end = await runToEnd(runtime.file, args, { timeoutMs: COMMAND_MS });
  if (end.exitCode !== 0)
    throw new ContainerError(`Container ${name}: its limits could not be changed: ${reasonOfEnd(end)}`);
}

/** Undefined if the runtime does not know the container. */
export async function statusOfOci(runtime: OciRuntime, name: string): Promise<OciStatus | undefined> {
  const end = await runToEnd(runtime.file, [...runtime.args, 'state', name], { timeoutMs: COMMAND_MS });
  if (end.exitCode === 0) return (JSON.parse(end.stdout) as { status: OciStatus }).status;
  if (!(await namesOfOci(runtime.root)).includes(name)) return undefined;
  throw new ContainerError(`${runtime.file} does not return the state of ${name}: ${reasonOfEnd(end)}`);
}

/** Kills the container first. Idempotent. @throws ContainerError */
export async function deleteOci(runtime: OciRuntime, name: string): Promise<void> {
  if (!(await namesOfOci(runtime.root)).includes(name)) return;
  const args = [...runtime.args, 'delete', '--force', name];
  const end = await runToEnd(runtime.file, args, { timeoutMs: COMMAND_MS });
  if (end.exitCode === 0 || !(await namesOfOci(runtime.root)).includes(name)) return;
  throw new ContainerError(`${runtime.file} could not delete ${name}: ${reasonOfEnd(end)}`);
}

export async function namesOfOci(root: string): Promise<string[]> {
  return readdir(root).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return [];
    throw new ContainerError(`${root} cannot be read: ${messageOf(error)}`, error);
  });
}

interface LoggedMessage {
  level?: string;
  msg?: string;
  pid?: number;
  status?: number;
}

/** The last message in a log that it writes with `--log-format json`. */
export async function lastMessageOf(log: string): Promise<string | undefined> {
  return (await messagesIn(log)).findLast(({ level }) => level !== 'debug')?.msg;
}

/**
 * The exit status of a process that the runtime has started. Only runc logs it, and only with
 * `--debug`.
 */
export async function loggedExit(log: string, pid: number): Promise<number | undefined> {
  return (await messagesIn(log)).findLast((one) => one.msg === 'process exited' && one.pid === pid)?.status;
}

async function messagesIn(log: string): Promise<LoggedMessage[]> {
  const text = await readFile(log, 'utf8').catch(() => '');
  const lines = text.split('\n').filter((line) => line !== '');
  return lines.map((line) => {
    try {
      return JSON.parse(line) as LoggedMessage;
    } catch {
      return { msg: line };
    }
  });
}

/** The programs write lines such as `time="…" level=error msg="…"`. */
export function reasonOfEnd({ stderr, exitCode }: Pick<ProgramEnd, 'stderr' | 'exitCode'>): string {
  const line = stderr.trim().split('\n').at(-1) ?? '';
  const message = /msg="((?:[^"\\]|\\.)*)"/.exec(line)?.[1]?.replace(/\\(.)/g, '$1');
  return message ?? (line === '' ? `exit code ${exitCode}` : line);
}
