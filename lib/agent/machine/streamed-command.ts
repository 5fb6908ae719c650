/**
 * Runs one command with its input and output as streams, with pipes or in a terminal. Behind the
 * gate of command.ts, so the journal holds its process group before it does anything.
 *
 * The terminal is made by `script` of util-linux, a part of every distribution; `stty` sets its
 * size. The command leads a session of its own there, which the kernel hangs up when `script` ends.
 */
import { execFile } from 'node:child_process';
import { readFile, unlink } from 'node:fs/promises';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import type { Writable } from 'node:stream';
import { promisify } from 'node:util';
import type { Clock } from '../../platform/time/clock.ts';
import type { Terminal, TerminalSize } from '../../protocol/streams/stream.ts';
import { TaskFailure } from '../task-failure.ts';
import {
  beginAtGate,
  buildEnvironment,
  bytesRead,
  type CommandDeps,
  type Exit,
  isWaiting,
  killAtAbort,
  parseInterpreter,
  spawned,
} from './command.ts';
import { writeCommandFiles } from './command-files.ts';
import { signalOfStatus } from './exit-status.ts';
import type { CommandRun, StreamedCommand, StreamedResult } from './machine.ts';
import { allProcesses, signalProcess } from './proc.ts';
import { executablePath } from './run-as.ts';

/** How long processes that the command has left may still write. */
const GRACE_MS = 1000;
const POLL_MS = 100;
/** How often the output of a program is polled if something else passes on its last output. */
const POLLS_OF_RUNNING = 10;
/** More than pipes and connections between the command and the agent hold. */
const MAX_LEFT_BYTES = 4 * 1024 * 1024;
const TTY = /^\/dev\/pts\/\d+$/;

export async function streamCommand(
  deps: CommandDeps,
  command: StreamedCommand,
  run: Omit<CommandRun, 'output'>,
): Promise<StreamedResult> {
  const program = await startable(deps, command, run.id);
  const ttyFile = join(deps.directory, `${run.id}.tty`);
  try {
    const { argv: direct } = program;
    const argv = command.terminal === undefined ? direct : await inTerminal(direct, command.terminal, ttyFile);
    // `script` starts this shell, for which the arguments are quoted.
    const term = command.terminal === undefined ? {} : { TERM: command.terminal.type, SHELL: '/bin/sh' };
    return await runStreamed(deps, { argv, env: { ...command.env, ...term }, command, run, ttyFile });
  } finally {
    await program.remove();
    await unlink(ttyFile).catch(() => undefined);
  }
}

/** The argv of the program, and what removes its files. */
async function startable(deps: CommandDeps, { program, env }: StreamedCommand, id: string) {
  if ('argv' in program) return { argv: program.argv, remove: async () => undefined };
  const files = await writeCommandFiles({ ...program, env }, { ...deps, id, account: undefined });
  return {
    argv: [...parseInterpreter(program.script), files.script, ...program.args],
    remove: () => files.remove(),
  };
}

interface LaunchedProgram {
  argv: readonly string[];
  env: Record<string, string>;
  command: StreamedCommand;
  run: Omit<CommandRun, 'output'>;
  ttyFile: string;
}

async function runStreamed(deps: CommandDeps, { argv, env, command, run, ttyFile }: LaunchedProgram) {
  const { clock } = deps;
  const { streams } = command;
  const { child, pgid } = await spawned([...argv], buildEnvironment(env, process.env), 'pipe');
  const stdin = child.stdin as Writable;
  const outputs = [child.stdout, child.stderr] as Socket[];
  // The command may end, or close its input, before its caller does.
  stdin.on('error', () => streams.stdin.resume());
  const exited = new Promise<Exit>((resolve) => child.on('exit', (code, signal) => resolve({ code, signal })));
  const exitedSignal = new AbortController();
  void exited.then(() => exitedSignal.abort());
  streams.stdin.pipe(stdin);
  child.stdout?.pipe(streams.stdout, { end: false });
  child.stderr?.pipe(streams.stderr, { end: false });
  command.onResize(resizer(clock, ttyFile, exited));
  const read = Promise.all(outputs.map((output) => new Promise((resolve) => output.once('close', resolve))));
  const ended = exited.then(async (exit) => {
    streams.stdin.unpipe(stdin);
    // What is left of the group would take a lost stream for the end of its input.
    if (run.signal.aborted) await killed();
    stdin.destroy();
    await lastOutput(clock, outputs, { pgid, read, signal: run.signal });
    return exit;
  });
  const killed = killAtAbort(clock, pgid, { signal: run.signal, ended: exited, first: command.killFirst });
  await beginAtGate(deps, { child, pgid }, run);
  if ('argv' in command.program) {
    await command.program.programEnd(exitedSignal.signal);
    await untilTaken(clock, outputs, { polls: POLLS_OF_RUNNING, signal: exitedSignal.signal });
    if (!exitedSignal.signal.aborted) signalProcess(-pgid, 'SIGKILL');
  }
  const { code, signal } = await ended;
  const wasKilled = await killed();
  await endSession(ttyFile);
  return {
    exitCode: code,
    signal: signal ?? signalOfStatus(code ?? 0) ?? null,
    killed: wasKilled,
  };
}

/**
 * Resolves when everything that the command has written is taken. Processes that it has left may
 * hold its output open, and a slow caller may not have taken it yet: the first are killed, the
 * second is waited for.
 */
async function lastOutput(
  clock: Clock,
  outputs: readonly Socket[],
  { pgid, read, signal }: { pgid: number; read: Promise<unknown>; signal: AbortSignal },
): Promise<void> {
  const done = new AbortController();
  void read.then(() => done.abort());
  const both = AbortSignal.any([done.signal, signal]);
  await clock.sleep(GRACE_MS, both);
  signalProcess(-pgid, 'SIGKILL');
  await untilTaken(clock, outputs, { polls: 1, signal: both });
  for (const output of outputs) output.destroy();
}

/**
 * Resolves when what has been written until now is taken. All that was there has been read once
 * reading went on from one poll to the next: a caller that is slow pauses it. A writer that is
 * still alive may need some time to write what it holds, hence the number of polls, and may write
 * for ever.
 */
async function untilTaken(
  clock: Clock,
  outputs: readonly Socket[],
  { polls, signal }: { polls: number; signal: AbortSignal },
): Promise<void> {
  const readBefore = bytesRead(outputs);
  let wasPaused = false;
  const pause = () => {
    wasPaused = true;
  };
  for (const output of outputs) output.on('pause', pause);
  let quiet = 0;
  while (!signal.aborted && quiet < polls && bytesRead(outputs) - readBefore < MAX_LEFT_BYTES) {
    wasPaused = outputs.some(isWaiting);
    await clock.sleep(POLL_MS, signal);
    await new Promise<void>((resolve) => clock.afterPoll(resolve));
    quiet = wasPaused ? 0 : quiet + 1;
  }
  for (const output of outputs) output.off('pause', pause);
}

/** @throws TaskFailure if there is no terminal to be had */
async function inTerminal(argv: readonly string[], { columns, rows }: Terminal, ttyFile: string): Promise<string[]> {
  await has('script', 'util-linux');
  await has('stty', 'coreutils');
  const size = `stty columns ${columns} rows ${rows} 2>/dev/null`;
  // Its shell leads the session of the terminal.
  const command = `${size}; { tty; echo $$; } >${quoted(ttyFile)}; exec ${argv.map(quoted).join(' ')}`;
  return ['script', '--quiet', '--return', '--flush', '--command', command, '/dev/null'];
}

async function has(program: string, source: string): Promise<void> {
  await run(program, ['--version']).catch((cause: unknown) => {
    const message = `This server has no program ${program}, which makes terminals; install ${source}`;
    throw new TaskFailure('NoTerminal', message, { cause });
  });
}

/**
 * Changes the size one change at a time; of the changes that arrive meanwhile, only the last is
 * applied.
 */
function resizer(clock: Clock, ttyFile: string, exited: Promise<unknown>): (size: TerminalSize) => void {
  let wanted: TerminalSize | undefined;
  let isBusy = false;
  const over = new AbortController();
  void exited.then(() => over.abort());
  const work = async () => {
    while (wanted !== undefined && !over.signal.aborted) {
      const { tty } = await terminalIn(ttyFile);
      // The program may have begun a moment ago, and its terminal may not be there yet.
      if (tty === undefined) await clock.sleep(POLL_MS, over.signal);
      else {
        const { columns, rows } = wanted;
        wanted = undefined;
        await run('stty', ['-F', tty, 'columns', `${columns}`, 'rows', `${rows}`]).catch(() => undefined);
      }
    }
    isBusy = false;
  };
  return (size) => {
    wanted = size;
    if (isBusy) return;
    isBusy = true;
    void work();
  };
}

/**
 * Kills what the command has left in the session of its terminal, which is not its process group.
 */
async function endSession(ttyFile: string): Promise<void> {
  const { leader } = await terminalIn(ttyFile);
  if (leader === undefined) return;
  for (const { pid, session } of await allProcesses()) if (session === leader) signalProcess(pid, 'SIGKILL');
}

async function terminalIn(ttyFile: string): Promise<{ tty?: string; leader?: number }> {
  const [tty = '', pid = ''] = (await readFile(ttyFile, 'utf8').catch(() => '')).split('\n');
  return TTY.test(tty) && /^[1-9]\d*$/.test(pid) ? { tty, leader: Number(pid) } : {};
}

const run = (program: string, args: readonly string[]) =>
  promisify(execFile)(program, args, { env: { PATH: executablePath(process.env) }, timeout: 5_000 });

/** For sh. */
const quoted = (word: string): string => `'${word.replaceAll("'", "'\\''")}'`;
