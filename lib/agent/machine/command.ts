/**
 * Runs one command as its own process group. Used by linux-machine.ts.
 *
 * A shell leads the group and waits at a gate (a pipe). It starts the command only after the
 * journal holds the group. If the agent dies before that, the pipe closes and nothing has run. The
 * next agent process therefore knows every group that may have done something.
 *
 * The shell stays and exits with the command's exit code, or with 128 + N if signal N ended the
 * command. Node has no names for real-time signals (34 to 64): it reports a process that one of
 * them ended like one that exited with 0.
 *
 * A command has ended when its leader has exited and its outputs are closed. Processes of its group
 * that still hold them one second after the exit are killed. What they wrote before is read, also
 * by an agent that was stalled meanwhile. A process that has left the group and continues to write
 * prolongs this by two seconds. At a timeout, cancel or stop the whole group gets SIGTERM, and
 * SIGKILL two seconds later.
 */

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { Socket } from 'node:net';
import type { Readable, Writable } from 'node:stream';
import type { Clock, Timer } from '../../platform/time/clock.ts';
import { OUTPUT_STREAMS } from '../../protocol/output-streams.ts';
import { FLUSH_MS, KeptOutput, OutputStreamer } from '../output/output.ts';
import { TaskFailure } from '../task-failure.ts';
import { type CommandFiles, writeCommandFiles } from './command-files.ts';
import { signalOfStatus } from './exit-status.ts';
import type { Command, CommandResult, CommandRun, StreamedCommand } from './machine.ts';
import { allProcesses, processFacts, signalProcess } from './proc.ts';
import { type Account, executablePath, type Launch, prepareLaunch, prepareStart } from './run-as.ts';

export interface CommandDeps {
  clock: Clock;
  /** Directory of the scripts of running commands; only the agent may read it. */
  directory: string;
  bootId: string;
}

/**
 * Signals to the group must not end the shell before the command. A trap, other than an ignored
 * signal, is not inherited. Not trapped: KILL and STOP, faults, CHLD, job control, and the two
 * signals that the C library keeps for itself.
 */
const TRAPPED = Array.from({ length: 64 }, (_, index) => index + 1).filter(
  (signal) => ![4, 7, 8, 9, 11, 17, 18, 19, 20, 21, 22, 32, 33].includes(signal),
);
/** The shell's own standard error is /dev/null: it would name the signal there. */
const GATE = `read -r cnapi_gate <&3 || exit 125
unset cnapi_gate
trap : ${TRAPPED.join(' ')}
exec 3>&2 2>/dev/null
(exec "$0" "$@") 2>&3 3>&-
exit $?`;
const KILL_AFTER_MS = 2000;
const OUTPUT_AFTER_EXIT_MS = 1000;
/**
 * Each reads 64 KiB or more, and a connection between two processes holds less than ten times that.
 */
const LAST_READS = 20;
/**
 * How long to wait until a killed group is gone; a process stuck in the kernel must not block the
 * task.
 */
const GONE_WITHIN_MS = 5000;
const POLL_MS = 25;
/** Bytes read from a stream before reading pauses; a command that writes faster is slowed down. */
const READ_BURST_BYTES = 4 * 1024 * 1024;
/** After its next flush the live output has room again. */
const READ_PAUSE_MS = FLUSH_MS;

export async function runCommand(deps: CommandDeps, command: Command, run: CommandRun): Promise<CommandResult> {
  const launch = await prepareLaunch(deps.clock, command);
  const files = await writeCommandFiles(command, { ...deps, id: run.id, account: launch.account });
  try {
    return await runScript(deps, { command, run, launch, files });
  } finally {
    await files.remove();
  }
}

/** Parses the first line as a kernel does: the interpreter and at most one argument. */
export function parseInterpreter(script: string): string[] {
  const line = /^#![ \t]*([^\s]+)[ \t]*([^\n]*)/.exec(script);
  if (!line?.[1]) return ['/bin/sh'];
  const argument = line[2]?.trim();
  return argument ? [line[1], argument] : [line[1]];
}

/**
 * Passes only PATH, HOME and LANG of the agent's own environment; another user has a HOME of its
 * own.
 */
export function buildEnvironment(
  given: Record<string, string>,
  own: NodeJS.ProcessEnv,
  account?: Account,
): Record<string, string> {
  const user = account === undefined ? {} : { HOME: account.home, USER: account.name, LOGNAME: account.name };
  return { PATH: executablePath(own), HOME: own.HOME ?? '/', LANG: own.LANG ?? 'C.UTF-8', ...user, ...given };
}

interface LaunchedScript {
  command: Command;
  run: CommandRun;
  launch: Launch;
  files: CommandFiles;
}

async function runScript(deps: CommandDeps, { command, run, launch, files }: LaunchedScript): Promise<CommandResult> {
  const file = files.file === undefined ? {} : { CHEF_PUSH_JOB_FILE: files.file };
  const variables = buildEnvironment({ ...command.env, ...file }, process.env, launch.account);
  const { env, prefix } = prepareStart(launch, variables, process.env);
  const argv = [...prefix, ...parseInterpreter(command.script), files.script, ...command.args];
  const { child, pgid } = await spawned(argv, env);
  const kept = { stdout: new KeptOutput(), stderr: new KeptOutput() };
  const isPaced = command.isPaced === true;
  const live = new OutputStreamer(deps.clock, run.output, { isPaced });
  const ended = waitForExit(deps, child, pgid);
  for (const name of OUTPUT_STREAMS) {
    readPaced(deps.clock, child[name] as Readable, (chunk) => {
      kept[name].add(chunk);
      return live.add(name, chunk) && isPaced;
    });
  }
  const killed = killAtAbort(deps.clock, pgid, { signal: run.signal, ended });
  await beginAtGate(deps, { child, pgid }, run);
  const { code, signal } = await ended;
  live.end();
  return {
    exitCode: code,
    signal: signal ?? signalOfStatus(code ?? 0) ?? null,
    stdout: kept.stdout.text(),
    stderr: kept.stderr.text(),
    killed: await killed(),
  };
}

/**
 * Some start failures (command line too long) are thrown; others (no memory) arrive as an event.
 */
export async function spawned(
  argv: string[],
  env: NodeJS.ProcessEnv,
  stdin: 'ignore' | 'pipe' = 'ignore',
): Promise<{ child: ChildProcess; pgid: number }> {
  try {
    const stdio = [stdin, 'pipe', 'pipe', 'pipe'] as const;
    const child = spawn('/bin/sh', ['-c', GATE, ...argv], { detached: true, cwd: '/', env, stdio: [...stdio] });
    child.on('error', () => undefined);
    if (child.pid === undefined) await once(child, 'spawn');
    return { child, pgid: child.pid as number };
  } catch (cause) {
    throw new TaskFailure('SpawnFailed', `The command could not be started: ${(cause as Error).message}`, { cause });
  }
}

/**
 * Starts the command once the journal holds its group. If that fails, kills the shell that waits.
 */
export async function beginAtGate(
  { clock, bootId }: CommandDeps,
  { child, pgid }: { child: ChildProcess; pgid: number },
  { signal, begin }: Pick<CommandRun, 'signal' | 'begin'>,
): Promise<void> {
  const startTime = (await processFacts(pgid))?.startTime ?? '0';
  try {
    await begin({ pgid, startTime, bootId });
  } catch (error) {
    await killGroupAtOnce(clock, pgid);
    throw error;
  }
  if (!signal.aborted) openGate(child);
}

function openGate(child: ChildProcess): void {
  const gate = child.stdio[3] as Writable;
  gate.on('error', () => undefined);
  gate.end('go\n');
}

export interface Exit {
  code: number | null;
  signal: NodeJS.Signals | null;
}

/**
 * Resolves when the leader has exited and its outputs are closed, by their holders or by the agent.
 */
function waitForExit({ clock }: CommandDeps, child: ChildProcess, pgid: number): Promise<Exit> {
  return new Promise((resolve) => {
    let timer: Timer | undefined;
    const outputs = [child.stdout, child.stderr].filter((stream) => stream instanceof Socket);
    const closeWhenRead = (exit: Exit, before: number, readsLeft: number) => {
      const read = bytesRead(outputs);
      if (readsLeft > 0 && (read > before || outputs.some(isWaiting))) {
        timer = clock.after(READ_PAUSE_MS, () => {
          clock.afterPoll(() => closeWhenRead(exit, read, readsLeft - 1));
        });
        return;
      }
      for (const stream of outputs) stream.destroy();
      resolve(exit);
    };
    child.on('exit', (code, signal) => {
      timer = clock.after(OUTPUT_AFTER_EXIT_MS, () => {
        signalProcess(-pgid, 'SIGKILL');
        // Not closed at the first check: output that arrived while the agent was stalled is read
        // after it.
        closeWhenRead({ code, signal }, -1, LAST_READS);
      });
      (child.stdio[3] as Writable).destroy();
    });
    child.on('close', (code, signal) => {
      timer?.cancel();
      resolve({ code, signal });
    });
  });
}

export const bytesRead = (streams: readonly Socket[]): number =>
  streams.reduce((sum, stream) => sum + stream.bytesRead, 0);

/** Reading pauses, or bytes that were read have not been taken. */
export const isWaiting = (stream: Socket): boolean => stream.isPaused() || stream.readableLength > 0;

/**
 * The returned function resolves when the group is gone, to whether the abort signal ended the
 * command. Call it once the command has ended.
 */
export function killAtAbort(
  clock: Clock,
  pgid: number,
  { signal, ended, first }: { signal: AbortSignal; ended: Promise<Exit>; first?: StreamedCommand['killFirst'] },
) {
  let exited = false;
  let killing: Promise<void> | undefined;
  const kill = () => {
    // If the first part fails, the rest is killed nevertheless.
    if (!exited) killing = Promise.resolve(first?.().catch(() => undefined)).then(() => killGroup(clock, pgid));
  };
  void ended.then(() => {
    exited = true;
    signal.removeEventListener('abort', kill);
  });
  if (signal.aborted) kill();
  else signal.addEventListener('abort', kill);
  return async (): Promise<boolean> => {
    await killing;
    return killing !== undefined;
  };
}

/**
 * Sends SIGTERM, and SIGKILL to what is left after KILL_AFTER_MS. Resolves when the group is gone.
 */
async function killGroup(clock: Clock, pgid: number): Promise<void> {
  signalProcess(-pgid, 'SIGTERM');
  if (!(await groupGone(clock, pgid, KILL_AFTER_MS))) await killGroupAtOnce(clock, pgid);
}

export async function killGroupAtOnce(clock: Clock, pgid: number): Promise<void> {
  signalProcess(-pgid, 'SIGKILL');
  await groupGone(clock, pgid, GONE_WITHIN_MS);
}

/** Zombie processes count as gone. */
async function groupGone(clock: Clock, pgid: number, withinMs: number): Promise<boolean> {
  const until = clock.now() + withinMs;
  while (signalProcess(-pgid, 0)) {
    const alive = (await allProcesses()).some((one) => one.pgid === pgid && one.state !== 'Z');
    if (!alive) return true;
    if (clock.now() >= until) return false;
    await clock.sleep(POLL_MS);
  }
  return true;
}

/** `take` returns true to request a pause. */
function readPaced(clock: Clock, stream: Readable, take: (chunk: Buffer) => boolean): void {
  let burst = 0;
  stream.on('data', (chunk: Buffer) => {
    const isFull = take(chunk);
    burst += chunk.length;
    if (!isFull && burst < READ_BURST_BYTES) return;
    burst = 0;
    stream.pause();
    clock.after(READ_PAUSE_MS, () => stream.resume());
  });
}
