/**
 * Runs another program in a running container. `argv` starts the OCI runtime, as a child of whoever
 * starts it; the runtime passes on the input and output of the program and ends as it does. It
 * reads what to run from a file that only the agent may read, because environments hold secrets.
 *
 * The program has a control group of its own (exec-cgroups.ts), also in the moment before the
 * runtime writes its pid. When the program was ended, by a cancel or because its runtime is gone,
 * all that the group holds is killed. When it ends by itself, its session is killed. Other
 * processes that it leaves belong to the container, unless they are too many to look at: then they
 * are killed, too.
 *
 * The runtime waits for all that hold the output of the program, and any process of the container
 * can open it. So whoever starts `argv` asks when the program has ended, and ends the runtime
 * itself. Then only the log of the runtime has the exit code.
 */
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../../../platform/time/clock.ts';
import { processFacts, signalProcess } from '../../machine/proc.ts';
import type { ExecCgroups, ExecId } from '../cgroups/exec-cgroups.ts';
import { isAlive, type ProcessId } from '../linux/monitor.ts';
import type { ExecExit, ExecRequest, PreparedExec } from '../runtime.ts';
import { buildOciProcess } from './oci-config.ts';
import { lastMessageOf, loggedExit, type OciRuntime } from './oci-runtime.ts';

interface ExecDeps {
  clock: Clock;
  oci: OciRuntime;
  cgroups: ExecCgroups;
  maxOpenFiles: number;
}

interface ExecPlace extends ExecId {
  /** Holds the files of this program; removed afterwards. */
  directory: string;
}

const POLL_MS = 100;
/** How many processes are looked at. */
const MAX_PROCESSES = 4_096;

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
  argv: readonly string[] = [];
  readonly #deps: ExecDeps;
  readonly #place: ExecPlace;
  readonly #pidFile: string;
  readonly #log: string;
  #started: ProcessId | undefined;

  constructor(deps: ExecDeps, place: ExecPlace) {
    this.#deps = deps;
    this.#place = place;
    this.#pidFile = join(place.directory, 'pid');
    this.#log = join(place.directory, 'log');
  }

  async prepare(request: ExecRequest): Promise<this> {
    const { oci, cgroups, maxOpenFiles } = this.#deps;
    const { directory, run } = this.#place;
    const program = join(directory, 'process.json');
    await mkdir(directory, { recursive: true, mode: 0o700 });
    await writeFile(program, JSON.stringify(buildOciProcess(request, maxOpenFiles)), { mode: 0o600 });
    const cgroup = await cgroups.open(this.#place);
    const logged = ['--debug', '--log', this.#log, '--log-format', 'json'];
    const files = ['--process', program, '--pid-file', this.#pidFile];
    this.argv = [oci.file, ...logged, ...oci.args, 'exec', ...files, '--cgroup', cgroup, run];
    return this;
  }

  async programEnd(signal: AbortSignal): Promise<void> {
    let program = await this.#program();
    while (!signal.aborted && (program === undefined || (await isAlive(program)))) {
      await this.#deps.clock.sleep(POLL_MS, signal);
      program = await this.#program();
    }
  }

  kill(): Promise<void> {
    return this.#deps.cgroups.kill(this.#place);
  }

  async finish({ exitCode, killed }: ExecExit) {
    const { cgroups } = this.#deps;
    try {
      const program = await this.#program();
      // Without the runtime, nobody would learn how the program ends.
      if (killed || program === undefined || (await isAlive(program))) {
        await cgroups.kill(this.#place);
      } else {
        await this.#killLeft(program);
        await cgroups.release(this.#place);
      }
      if (killed) return { exitCode };
      if (program !== undefined) return { exitCode: (await loggedExit(this.#log, program.pid)) ?? exitCode };
      return { notStarted: (await lastMessageOf(this.#log)) ?? 'the container runtime gave no reason' };
    } finally {
      await rm(this.#place.directory, { recursive: true, force: true });
    }
  }

  /** Kills the processes of the program's session. */
  async #killLeft(program: ProcessId): Promise<void> {
    const pids = await this.#deps.cgroups.processes(this.#place);
    const isTooMany = pids.length > MAX_PROCESSES;
    for (const pid of pids)
      if (isTooMany || (await processFacts(pid))?.session === program.pid) signalProcess(pid, 'SIGKILL');
  }

  /** Undefined until the runtime has started it. */
  async #program(): Promise<ProcessId | undefined> {
    if (this.#started !== undefined) return this.#started;
    const pid = Number(await readFile(this.#pidFile, 'utf8').catch(() => ''));
    if (pid > 0) this.#started = { pid, startTime: (await processFacts(pid))?.startTime ?? 'ended' };
    return this.#started;
  }
}
