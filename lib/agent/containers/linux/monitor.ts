/**
 * Starts conmon, the monitor of one run. It creates the container through the OCI runtime, holds
 * its output and writes it to the log, and writes the exit status to a file. It outlives the agent.
 *
 * conmon waits at a pipe until the agent has moved it to a control group of its own. On another
 * pipe it reports the process of the container, or why it could not be created.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import type { Readable, Writable } from 'node:stream';
import type { Clock } from '../../../platform/time/clock.ts';
import { processFacts, signalProcess } from '../../machine/proc.ts';
import { executablePath } from '../../machine/run-as.ts';
import type { RunCgroups } from '../cgroups/run-cgroups.ts';
import { ContainerError } from '../container-errors.ts';
import { currentLog } from '../logs/log-files.ts';
import { type OciRuntime, reasonOfEnd } from '../oci/oci-runtime.ts';
import { type ContainerPaths, exitsOf } from './container-paths.ts';

interface MonitorDeps {
  clock: Clock;
  /** The directory of all containers. */
  directory: string;
  cgroups: RunCgroups;
  /** The program conmon. */
  file: string;
  oci: OciRuntime;
}

interface MonitorRequest {
  /** The name of the run. */
  name: string;
  paths: ContainerPaths;
  logMaxBytes: number;
  hasTerminal: boolean;
  timeoutMs: number;
}

/** Identifies a process, also after its pid was used again. */
export interface ProcessId {
  pid: number;
  startTime: string;
}

export interface CreatedRun {
  /** The first process of the container, which waits for its start. */
  pid: number;
  monitor: ProcessId;
}

const START_PIPE = 3;
const SYNC_PIPE = 4;
const ENDS_WITHIN_MS = 2_000;
const POLL_MS = 20;
const MAX_SAID_CHARS = 64 * 1024;

/** Resolves when the container is created. @throws ContainerError; then a part of it may be left */
export async function startMonitor(deps: MonitorDeps, request: MonitorRequest): Promise<CreatedRun> {
  const { clock, cgroups, file } = deps;
  const { name, paths, timeoutMs } = request;
  const child = spawn(file, monitorArgs(deps, request), {
    cwd: paths.bundle,
    detached: true,
    env: { PATH: executablePath(process.env), _OCI_STARTPIPE: `${START_PIPE}`, _OCI_SYNCPIPE: `${SYNC_PIPE}` },
    stdio: ['ignore', 'ignore', 'pipe', 'pipe', 'pipe'],
  });
  const [, , errors, gate, sync] = child.stdio as [null, null, Readable, Writable, Readable];
  try {
    const failed = once(child, 'error').then(([error]) => Promise.reject(error));
    failed.catch(() => undefined);
    gate.on('error', () => undefined);
    const said = collected(errors);
    if (child.pid !== undefined) await cgroups.adoptMonitor(name, child.pid);
    gate.end('go');
    const isLate = new AbortController();
    const late = clock.sleep(timeoutMs, isLate.signal).then(() => undefined);
    const answer = await Promise.race([firstLine(sync), failed, late]).finally(() => isLate.abort());
    if (answer === undefined) throw new ContainerError(`Container ${name}: not created within ${timeoutMs / 1000} s`);
    return { pid: pidOf(answer, said.text), monitor: await monitorOf(paths) };
  } catch (error) {
    if (error instanceof ContainerError) throw error;
    throw new ContainerError(
      `Container ${name}: its monitor ${file} could not be started: ${(error as Error).message}`,
      error,
    );
  } finally {
    for (const stream of [errors, gate, sync]) stream.destroy();
    child.unref();
  }
}

export async function isAlive({ pid, startTime }: ProcessId): Promise<boolean> {
  const facts = await processFacts(pid);
  return facts?.startTime === startTime && facts.state !== 'Z';
}

/**
 * Ends a monitor that has no control group: waits for it, because it ends after its container, then
 * kills it.
 */
export async function endMonitor(clock: Clock, monitor: ProcessId): Promise<void> {
  const killAt = clock.now() + ENDS_WITHIN_MS;
  while (await isAlive(monitor)) {
    if (clock.now() >= killAt) signalProcess(monitor.pid, 'SIGKILL');
    await clock.sleep(POLL_MS);
  }
}

function monitorArgs({ directory, oci }: MonitorDeps, request: MonitorRequest): string[] {
  const { name, paths, logMaxBytes, hasTerminal } = request;
  return [
    ...['--api-version', '1', '--cid', name, '--cuuid', name, '--name', name],
    ...['--runtime', oci.file, ...oci.args.map((arg) => `--runtime-arg=${arg}`)],
    ...['--bundle', paths.bundle, '--container-pidfile', paths.pid, '--conmon-pidfile', paths.monitorPid],
    ...['--exit-dir', exitsOf(directory), '--log-path', `k8s-file:${currentLog(paths.logs)}`],
    ...['--log-size-max', `${logMaxBytes}`, '--full-attach'],
    ...(hasTerminal ? ['--terminal'] : []),
  ];
}

/** conmon writes `{"data": PID}`, or `{"data": -1, "message": "…"}` with what the runtime said. */
function pidOf(line: string, errors: string): number {
  const answer = parsed(line);
  const pid = answer?.data ?? -1;
  if (pid > 0) return pid;
  const stderr = answer?.message ?? (errors.trim() || 'the monitor said nothing');
  throw new ContainerError(`The container could not be created: ${reasonOfEnd({ stderr, exitCode: null })}`);
}

function parsed(line: string): { data?: number; message?: string } | undefined {
  try {
    return JSON.parse(line);
  } catch {
    return undefined;
  }
}

async function monitorOf({ monitorPid }: ContainerPaths): Promise<ProcessId> {
  const pid = Number(await readFile(monitorPid, 'utf8'));
  return { pid, startTime: (await processFacts(pid))?.startTime ?? '0' };
}

function firstLine(stream: Readable): Promise<string> {
  return new Promise((resolve) => {
    const read = collected(stream);
    stream.on('data', () => void (read.text.includes('\n') && resolve(read.text)));
    for (const event of ['end', 'close', 'error']) stream.on(event, () => resolve(read.text));
  });
}

/** The `text` of the result grows, up to a limit, while the stream is read. */
function collected(stream: Readable): { text: string } {
  const read = { text: '' };
  stream.setEncoding('utf8');
  stream.on('error', () => undefined);
  stream.on('data', (chunk: string) => {
    read.text = (read.text + chunk).slice(0, MAX_SAID_CHARS);
  });
  return read;
}
