/**
 * Runs another program in a running container. `words` start the OCI runtime, as a child of whoever
 * starts it; the runtime passes on the input and output of the program and ends as it does. It reads
 * what to run from a file that only the agent may read, because environments hold secrets.
 *
 * The program has a control group of its own (exec-groups.ts), also in the moment before the runtime
 * writes its pid. When the program was ended, by a cancel or because its runtime is gone, all that
 * the group holds is killed. When it ends by itself, its session is killed, and what else holds its
 * output: the runtime would wait for that. Other processes that it leaves belong to the container,
 * unless they are too many to look at, or have too many open files: then they are killed, too.
 */
import { mkdir, opendir, readFile, readlink, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../../../platform/time/clock.ts';
import { allProcesses, processFacts, signalProcess } from '../../machine/proc.ts';
import type { ExecGroups, ExecId } from '../exec-groups.ts';
import { isAlive, type ProcessId } from '../monitor.ts';
import type { ExecExit, ExecRequest, PreparedExec } from '../runtime.ts';
import { ociProcessOf } from './oci-config.ts';
import { lastMessageOf, type OciRuntime } from './oci-runtime.ts';

interface ExecDeps {
  clock: Clock;
  oci: OciRuntime;
  groups: ExecGroups;
  maxOpenFiles: number;
}

interface ExecPlace extends ExecId {
  /** Holds the files of this program; removed afterwards. */
  directory: string;
}

const LOOK_MS = 100;
/** How long processes that the program has left may still write. */
const LEFT_MS = 1_000;
/** How many processes, and open files of them together, are looked at each time. */
const MAX_PROCESSES = 4_096;
const MAX_FILES = 10_000;

/** @throws ContainerError */
export async function prepareExec(deps: ExecDeps, request: ExecRequest, place: ExecPlace): Promise<PreparedExec> {
  const exec = new OciExec(deps, place);
  try {
    return await exec.prepare(request);
  } catch (error) {
    await exec.finish({ exitCode: null, killed: true });
    throw error;
  }
}

class OciExec implements PreparedExec {
  words: readonly string[] = [];
  readonly #deps: ExecDeps;
  readonly #place: ExecPlace;
  readonly #pidFile: string;
  readonly #log: string;
  readonly #over = new AbortController();
  #watching: Promise<void> | undefined;
  #started: ProcessId | undefined;

  constructor(deps: ExecDeps, place: ExecPlace) {
    this.#deps = deps;
    this.#place = place;
    this.#pidFile = join(place.directory, 'pid');
    this.#log = join(place.directory, 'log');
  }

  async prepare(request: ExecRequest): Promise<this> {
    const { oci, groups, maxOpenFiles } = this.#deps;
    const { directory, run } = this.#place;
    const program = join(directory, 'process.json');
    await mkdir(directory, { recursive: true, mode: 0o700 });
    const process = { ...ociProcessOf(request, maxOpenFiles), terminal: request.hasTerminal };
    await writeFile(program, JSON.stringify(process), { mode: 0o600 });
    const group = await groups.open(this.#place);
    const logged = ['--log', this.#log, '--log-format', 'json'];
    const files = ['--process', program, '--pid-file', this.#pidFile];
    this.words = [oci.file, ...logged, ...oci.args, 'exec', ...files, '--cgroup', group, run];
    return this;
  }

  watch(leader: number): void {
    this.#watching ??= this.#watch(leader);
  }

  kill(): Promise<void> {
    return this.#deps.groups.kill(this.#place);
  }

  async finish({ killed }: ExecExit) {
    const { groups } = this.#deps;
    this.#over.abort();
    await this.#watching;
    try {
      const program = await this.#program();
      // Without the runtime, nobody would learn how the program ends.
      if (killed || program === undefined || (await isAlive(program))) {
        await groups.kill(this.#place);
      } else {
        await this.#killLeft(program, new Set());
        await groups.release(this.#place);
      }
      if (killed || program !== undefined) return 'ended';
      return { notStarted: (await lastMessageOf(this.#log)) ?? 'the container runtime gave no reason' };
    } finally {
      await rm(this.#place.directory, { recursive: true, force: true });
    }
  }

  /** When the program has ended, ends what its runtime waits for. */
  async #watch(leader: number): Promise<void> {
    const { clock } = this.#deps;
    const { signal } = this.#over;
    let program: ProcessId | undefined;
    while (!signal.aborted && (program === undefined || (await isAlive(program)))) {
      await clock.sleep(LOOK_MS, signal);
      program = await this.#program();
    }
    await clock.sleep(LEFT_MS, signal);
    while (!signal.aborted && program !== undefined) {
      await this.#killLeft(program, await pipesBelow(leader));
      await clock.sleep(LOOK_MS, signal);
    }
  }

  /** Kills the processes of the program's session, and those that hold one of the pipes. */
  async #killLeft(program: ProcessId, pipes: ReadonlySet<string>): Promise<void> {
    const pids = await this.#deps.groups.processes(this.#place);
    const budget = { files: MAX_FILES };
    for (const pid of pids.slice(0, MAX_PROCESSES)) {
      const isOfSession = (await processFacts(pid))?.session === program.pid;
      if (isOfSession || (await holdsAny(pid, pipes, budget))) signalProcess(pid, 'SIGKILL');
    }
    if (pids.length > MAX_PROCESSES || budget.files < 0) for (const pid of pids) signalProcess(pid, 'SIGKILL');
  }

  /** Undefined until the runtime has started it. */
  async #program(): Promise<ProcessId | undefined> {
    if (this.#started !== undefined) return this.#started;
    const pid = Number(await readFile(this.#pidFile, 'utf8').catch(() => ''));
    if (pid > 0) this.#started = { pid, startTime: (await processFacts(pid))?.startTime ?? 'ended' };
    return this.#started;
  }
}

/** The pipes that the children of a process hold. */
async function pipesBelow(parent: number): Promise<Set<string>> {
  const children = (await allProcesses()).filter((one) => one.parent === parent);
  const pipes = new Set<string>();
  for (const { pid } of children) for await (const pipe of pipesOf(pid, { files: MAX_FILES })) pipes.add(pipe);
  return pipes;
}

async function holdsAny(pid: number, pipes: ReadonlySet<string>, budget: { files: number }): Promise<boolean> {
  if (pipes.size === 0) return false;
  for await (const pipe of pipesOf(pid, budget)) if (pipes.has(pipe)) return true;
  return false;
}

/** Each as `pipe:[NUMBER]`. Takes each open file out of the budget, and ends when that is below 0. */
async function* pipesOf(pid: number, budget: { files: number }): AsyncGenerator<string> {
  const path = `/proc/${pid}/fd`;
  const directory = await opendir(path, { bufferSize: 256 }).catch(() => undefined);
  if (directory === undefined) return;
  try {
    for await (const { name } of directory) {
      budget.files -= 1;
      if (budget.files < 0) return;
      const link = await readlink(join(path, name)).catch(() => '');
      if (link.startsWith('pipe:')) yield link;
    }
  } catch {
    // The process has ended.
  }
}
