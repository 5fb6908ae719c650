/** Finds programs of the distribution, and runs them to their end. */
import { execFile } from 'node:child_process';
import { delimiter } from 'node:path';
import { pipeline, Readable } from 'node:stream';
import { definedFields } from '../../../platform/defined-fields.ts';
import { findExecutable } from '../../machine/find-executable.ts';
import { executablePath } from '../../machine/run-as.ts';

export interface ProgramEnd {
  /** Null if a signal or the time limit ended it, or if it could not be started. */
  exitCode: number | null;
  stdout: string;
  /** The program's own message about its failure; the reason if it could not be started. */
  stderr: string;
  /** The program was killed because it printed more than is kept. */
  hasMoreOutput?: true;
}

export interface ProgramOptions {
  timeoutMs: number;
  directory?: string;
  /** Added to the environment of the agent. */
  env?: Readonly<Record<string, string>>;
  /** The program's standard input; empty by default. */
  input?: Iterable<Buffer>;
  /** Kills it. */
  signal?: AbortSignal;
}

/** Debian keeps programs for root off the PATH of others. */
const MORE_PLACES = ['/usr/local/sbin', '/usr/sbin', '/sbin'];
const MAX_OUTPUT_BYTES = 4 * 1024 * 1024;
const MORE_OUTPUT = 'ERR_CHILD_PROCESS_STDIO_MAXBUFFER';

/** The path of a program on the PATH; undefined if there is none. */
export const findProgram = (name: string): Promise<string | undefined> =>
  findExecutable(name, [...executablePath(process.env).split(delimiter), ...MORE_PLACES]);

/**
 * Never rejects. The program is killed after its time, and at more than MAX_OUTPUT_BYTES of output.
 */
export function runToEnd(file: string, args: readonly string[], options: ProgramOptions): Promise<ProgramEnd> {
  const { timeoutMs, directory = '/', env = {}, input = [] } = options;
  return new Promise((resolve) => {
    const child = execFile(
      file,
      [...args],
      {
        timeout: timeoutMs,
        killSignal: 'SIGKILL',
        maxBuffer: MAX_OUTPUT_BYTES,
        cwd: directory,
        ...definedFields({ signal: options.signal }),
        env: { ...process.env, ...env },
      },
      (error, stdout, stderr) => {
        if (error === null) return resolve({ exitCode: 0, stdout, stderr });
        const exitCode = typeof error.code === 'number' ? error.code : null;
        const hasMoreOutput = String(error.code) === MORE_OUTPUT;
        const isLate = error.killed === true && !hasMoreOutput;
        const reason = isLate ? `${file} did not end within ${timeoutMs} ms` : error.message;
        const end = { exitCode, stdout, stderr: exitCode === null ? reason : stderr };
        resolve(hasMoreOutput ? { ...end, hasMoreOutput } : end);
      },
    );
    // If the program ends before it has read everything, only its exit code counts.
    if (child.stdin) pipeline(Readable.from(input), child.stdin, () => undefined);
  });
}
