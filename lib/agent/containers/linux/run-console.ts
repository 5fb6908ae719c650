/**
 * The terminal of a run. Its monitor holds it, writes its output to the log, and listens for input
 * at a socket of packets. Node cannot open one, so a program in Perl (console-input.pl) does it.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { ContainerError } from '../container-errors.ts';
import type { ConsoleEnd, ConsoleInput, RunConsole } from '../runtime.ts';
import type { ContainerPaths } from './container-paths.ts';
import { askMonitor, resizeTerminal } from './monitor-control.ts';
import { findProgram } from './programs.ts';

const PROGRAM = join(import.meta.dirname, 'console-input.pl');
const MAX_SAID_CHARS = 1_000;

export const consoleAt = ({ bundle, control }: ContainerPaths): RunConsole => ({
  openInput: () => openInput(bundle),
  resize: async (size) => void (await askMonitor(control, resizeTerminal(size))),
});

/** Resolves when the monitor has been reached. */
async function openInput(bundle: string): Promise<ConsoleInput> {
  const perl = await findProgram('perl');
  if (perl === undefined) throw new ContainerError('This server has no perl; install it (perl-base in Debian)');
  const child = spawn(perl, [PROGRAM], { cwd: bundle, env: { PATH: process.env.PATH }, stdio: 'pipe' });
  let said = '';
  child.stderr.on('data', (bytes: Buffer) => {
    said = (said + bytes.toString()).slice(0, MAX_SAID_CHARS);
  });
  // A write to a program that has ended; `ended` says so.
  child.stdin.on('error', () => undefined);
  let isClosed = false;
  const ended = once(child, 'close').then(
    ([code]: (number | null)[]): ConsoleEnd => (code === 0 || isClosed ? 'closed' : 'broken'),
    (error: Error): ConsoleEnd => {
      said = error.message;
      return 'broken';
    },
  );
  const attached = once(child.stdout, 'data').then(() => true);
  const isOpen = await Promise.race([attached, ended.then(() => false)]);
  if (!isOpen) throw new ContainerError(`The terminal of the container cannot be opened: ${said.trim()}`);
  return {
    input: child.stdin,
    ended,
    close() {
      isClosed = true;
      child.kill('SIGKILL');
    },
  };
}
