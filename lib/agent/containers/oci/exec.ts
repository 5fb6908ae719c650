/**
 * Runs another program in a running container, as a child of the agent: it ends with the agent. The
 * runtime reads what to run from a file that only the agent may read, because environments hold
 * secrets. The program leads a session of its own, by which it is killed; a process that has made
 * another session, and whose parents are gone, stays until the container ends.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../../../platform/clock.ts';
import { allProcesses, signalProcess } from '../../machine/proc.ts';
import { executablePath } from '../../machine/run-as.ts';
import { ContainerError } from '../container-errors.ts';
import type { ExecRequest } from '../runtime.ts';
import { ociProcessOf } from './oci-config.ts';
import { lastMessageOf, type OciRuntime } from './oci-runtime.ts';

interface ExecDeps {
  clock: Clock;
  oci: OciRuntime;
  maxOpenFiles: number;
}

interface ExecFiles {
  /** The name of the run. */
  name: string;
  /** Holds the files of this program; removed afterwards. */
  directory: string;
}

const LOOK_MS = 25;
/** The runtime ends soon after the program that it has run. */
const KILL_RUNTIME_AFTER_MS = 2_000;

/** Resolves to its exit code; null if `signal` aborted. @throws ContainerError if it cannot be started */
export async function execInOci(deps: ExecDeps, request: ExecRequest, files: ExecFiles): Promise<number | null> {
  const { oci, maxOpenFiles } = deps;
  const { directory, name } = files;
  const inside = (file: string) => join(directory, file);
  const [program, pid, log] = ['process.json', 'pid', 'log'].map(inside) as [string, string, string];
  try {
    await mkdir(directory, { recursive: true, mode: 0o700 });
    await writeFile(program, JSON.stringify(ociProcessOf(request, maxOpenFiles)), { mode: 0o600 });
    if (request.signal.aborted) return null;
    const logged = ['--log', log, '--log-format', 'json'];
    const args = [...logged, ...oci.args, 'exec', '--process', program, '--pid-file', pid, name];
    const exitCode = await runChild(deps, oci.file, { args, pidFile: pid, request });
    if (request.signal.aborted) return null;
    if ((await pidIn(pid)) === undefined)
      throw new ContainerError(
        `The program could not be started: ${(await lastMessageOf(log)) ?? `exit code ${exitCode}`}`,
      );
    return exitCode;
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

interface Child {
  args: readonly string[];
  pidFile: string;
  request: ExecRequest;
}

function runChild({ clock }: ExecDeps, file: string, { args, pidFile, request }: Child): Promise<number | null> {
  return new Promise((resolve, reject) => {
    const env = { PATH: executablePath(process.env) };
    const child = spawn(file, args, { cwd: '/', env, stdio: ['ignore', 'pipe', 'pipe'] });
    let isOver = false;
    const kill = () => void killUntil(clock, { child, pidFile, isOver: () => isOver });
    child.stdout.on('data', (chunk: Buffer) => request.output('stdout', chunk));
    child.stderr.on('data', (chunk: Buffer) => request.output('stderr', chunk));
    child.on('error', (error) => reject(new ContainerError(`${file} could not be started: ${error.message}`, error)));
    child.on('close', (code) => {
      isOver = true;
      request.signal.removeEventListener('abort', kill);
      resolve(code);
    });
    if (request.signal.aborted) kill();
    else request.signal.addEventListener('abort', kill);
  });
}

interface Killing {
  child: ChildProcess;
  pidFile: string;
  isOver(): boolean;
}

/** The program may not have started yet, so this looks for it until the runtime has ended. */
async function killUntil(clock: Clock, { child, pidFile, isOver }: Killing): Promise<void> {
  const killRuntimeAt = clock.now() + KILL_RUNTIME_AFTER_MS;
  while (!isOver()) {
    const pid = await pidIn(pidFile);
    if (pid !== undefined) await killSession(pid);
    if (clock.now() >= killRuntimeAt) child.kill('SIGKILL');
    await clock.sleep(LOOK_MS);
  }
}

async function killSession(leader: number): Promise<void> {
  const members = (await allProcesses()).filter(({ session }) => session === leader);
  for (const { pid } of members) signalProcess(pid, 'SIGKILL');
}

async function pidIn(file: string): Promise<number | undefined> {
  const pid = Number(await readFile(file, 'utf8').catch(() => ''));
  return pid > 0 ? pid : undefined;
}
