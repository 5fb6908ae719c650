/**
 * Runs one command as a process group of its own. Used by linux-machine.ts.
 *
 * The group is led by a shell that waits at a gate: it becomes the command only after the journal has the group, and if the
 * agent dies before, the gate's pipe closes and nothing was run. So every group that may do something is known by name
 * to the next agent process.
 *
 * The end of a command is its leader's exit with its outputs closed, or a second after the exit: what then still holds the
 * outputs is killed. At a timeout, cancel or stop the whole group gets SIGTERM, and SIGKILL two seconds later.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { unlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable, Writable } from 'node:stream';
import type { Clock } from '../ports/clock.ts';
import type { Command, CommandResult, CommandRun } from './machine.ts';
import { KeptOutput, LiveOutput } from './output.ts';
import { allProcesses, processFacts, signalProcess } from './proc.ts';
import { TaskFailure } from './task-end.ts';

export interface CommandDeps {
  clock: Clock;
  /** For the scripts of running commands; only the agent may read it. */
  directory: string;
  bootId: string;
}

const GATE = 'read -r go <&3 || exit 125; exec 3<&-; exec "$0" "$@"';
const KILL_AFTER_MS = 2000;
const OUTPUT_AFTER_EXIT_MS = 1000;
/** What is left of a killed group gets this long to be gone; a process stuck in the kernel must not hang the task. */
const GONE_WITHIN_MS = 5000;
const LOOK_MS = 25;
/** Read at most this much of a stream between two looks; a command that writes faster is slowed down. */
const READ_BURST_BYTES = 4 * 1024 * 1024;
const READ_PAUSE_MS = 100;

export async function runCommand(deps: CommandDeps, command: Command, run: CommandRun): Promise<CommandResult> {
  const path = join(deps.directory, run.id);
  await writeFile(path, command.script, { mode: 0o700 });
  try {
    return await runScript(deps, [...interpreterOf(command.script), path, ...command.args], { command, run });
  } finally {
    await unlink(path).catch(() => undefined);
  }
}

/** What a kernel would make of the first line: the interpreter and at most one argument. */
export function interpreterOf(script: string): string[] {
  const line = /^#![ \t]*([^\s]+)[ \t]*([^\n]*)/.exec(script);
  if (!line?.[1]) return ['/bin/sh'];
  const argument = line[2]?.trim();
  return argument ? [line[1], argument] : [line[1]];
}

/** Nothing of the agent's own environment but where programs are. */
export function environmentOf(given: Record<string, string>, own: NodeJS.ProcessEnv): Record<string, string> {
  const path = own.PATH ?? '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';
  return { PATH: path, HOME: own.HOME ?? '/', LANG: own.LANG ?? 'C.UTF-8', ...given };
}

interface Job {
  command: Command;
  run: CommandRun;
}

async function runScript(deps: CommandDeps, argv: string[], { command, run }: Job): Promise<CommandResult> {
  const { child, pgid } = await spawned(argv, environmentOf(command.env, process.env));
  const kept = { stdout: new KeptOutput(), stderr: new KeptOutput() };
  const live = new LiveOutput(deps.clock, run.output);
  const ended = endOf(deps, child, pgid);
  for (const name of ['stdout', 'stderr'] as const) {
    readPaced(deps.clock, child[name] as Readable, (chunk) => {
      kept[name].add(chunk);
      live.add(name, chunk);
    });
  }
  const killed = killAtAbort(deps.clock, pgid, { signal: run.signal, ended });
  const startTime = (await processFacts(pgid))?.startTime ?? '0';
  await run.begin({ pgid, startTime, bootId: deps.bootId });
  if (!run.signal.aborted) openGate(child);
  const { code, signal } = await ended;
  live.end();
  return { exitCode: code, signal, stdout: kept.stdout.text(), stderr: kept.stderr.text(), killed: await killed() };
}

/** Some reasons why it cannot start (too long a command line) are thrown, others (no memory) come as an event. */
async function spawned(argv: string[], env: NodeJS.ProcessEnv): Promise<{ child: ChildProcess; pgid: number }> {
  try {
    const stdio = ['ignore', 'pipe', 'pipe', 'pipe'] as const;
    const child = spawn('/bin/sh', ['-c', GATE, ...argv], { detached: true, cwd: '/', env, stdio: [...stdio] });
    child.on('error', () => undefined);
    if (child.pid === undefined) await once(child, 'spawn');
    return { child, pgid: child.pid as number };
  } catch (cause) {
    throw new TaskFailure('SpawnFailed', `The command could not be started: ${(cause as Error).message}`, { cause });
  }
}

function openGate(child: ChildProcess): void {
  const gate = child.stdio[3] as Writable;
  gate.on('error', () => undefined);
  gate.end('go\n');
}

interface Exit {
  code: number | null;
  signal: NodeJS.Signals | null;
}

/** Resolves when the leader is gone and its outputs are closed, by whoever holds them or by us. */
function endOf({ clock }: CommandDeps, child: ChildProcess, pgid: number): Promise<Exit> {
  return new Promise((resolve) => {
    let timer: { cancel(): void } | undefined;
    child.on('exit', (code, signal) => {
      timer = clock.after(OUTPUT_AFTER_EXIT_MS, () => {
        signalProcess(-pgid, 'SIGKILL');
        child.stdout?.destroy();
        child.stderr?.destroy();
        resolve({ code, signal });
      });
      (child.stdio[3] as Writable).destroy();
    });
    child.on('close', (code, signal) => {
      timer?.cancel();
      resolve({ code, signal });
    });
  });
}

/** The answer tells, once the command has ended, whether the signal ended it; then the group is gone as well. */
function killAtAbort(clock: Clock, pgid: number, { signal, ended }: { signal: AbortSignal; ended: Promise<Exit> }) {
  let exited = false;
  let killing: Promise<void> | undefined;
  const kill = () => {
    if (!exited) killing = killGroup(clock, pgid);
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

/** SIGTERM, and SIGKILL for what is left after a grace; resolves when the group is gone. */
export async function killGroup(clock: Clock, pgid: number): Promise<void> {
  signalProcess(-pgid, 'SIGTERM');
  if (!(await groupGone(clock, pgid, KILL_AFTER_MS))) await killGroupAtOnce(clock, pgid);
}

export async function killGroupAtOnce(clock: Clock, pgid: number): Promise<void> {
  signalProcess(-pgid, 'SIGKILL');
  await groupGone(clock, pgid, GONE_WITHIN_MS);
}

/** The dead that nobody has buried yet count as gone. */
async function groupGone(clock: Clock, pgid: number, withinMs: number): Promise<boolean> {
  const until = clock.now() + withinMs;
  while (signalProcess(-pgid, 0)) {
    const alive = (await allProcesses()).some((one) => one.pgid === pgid && one.state !== 'Z');
    if (!alive) return true;
    if (clock.now() >= until) return false;
    await clock.sleep(LOOK_MS);
  }
  return true;
}

function readPaced(clock: Clock, stream: Readable, take: (chunk: Buffer) => void): void {
  let burst = 0;
  stream.on('data', (chunk: Buffer) => {
    take(chunk);
    burst += chunk.length;
    if (burst < READ_BURST_BYTES) return;
    burst = 0;
    stream.pause();
    clock.after(READ_PAUSE_MS, () => stream.resume());
  });
}
