/**
 * The control groups of programs that are run in a container beside its own, each below the group
 * of the run. No process leaves its group, so everything that such a program has started can be
 * found, whatever sessions and parents it has. The OCI runtime puts the program there before it
 * starts. In version 1 only the tree of `pids` has these groups.
 */
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../../../platform/time/clock.ts';
import { signalProcess } from '../../machine/proc.ts';
import { ContainerError } from '../container-errors.ts';
import { directoriesIn, pidsIn, removeCgroup, removeWhenEmpty, tryForError } from './cgroup.ts';

interface ExecCgroupsDeps {
  clock: Clock;
  isV1: boolean;
  /** The directory of the group of a run; undefined where there are no control groups. */
  cgroupOf(name: string): string | undefined;
}

export interface ExecId {
  /** The name of the run. */
  run: string;
  /** Unique among the programs of the run. */
  id: string;
}

const RELEASE_WITHIN_MS = 1_000;
/** Looks for processes that were started meanwhile. */
const STOP_ROUNDS = 20;

export class ExecCgroups {
  readonly #deps: ExecCgroupsDeps;

  constructor(deps: ExecCgroupsDeps) {
    this.#deps = deps;
  }

  /**
   * Makes the group of a program. Returns it as the OCI runtime takes it. @throws ContainerError
   */
  async open({ run, id }: ExecId): Promise<string> {
    const problem = await tryForError(() => mkdir(join(this.#needCgroup(run), id)));
    if (problem !== undefined) throw new ContainerError(`The control group of a program cannot be made: ${problem}`);
    return this.#deps.isV1 ? `pids:${id}` : id;
  }

  processes({ run, id }: ExecId): Promise<number[]> {
    return pidsIn(join(this.#needCgroup(run), id));
  }

  /**
   * Kills the program and all that it has started. All of it is stopped before: no process may take
   * the death of another one for the end of its input. Idempotent. @throws ContainerError
   */
  async kill({ run, id }: ExecId): Promise<void> {
    const cgroup = join(this.#needCgroup(run), id);
    const stopped = new Set<number>();
    for (let round = 0; round < STOP_ROUNDS; round += 1) {
      const others = (await pidsIn(cgroup)).filter((pid) => !stopped.has(pid));
      if (others.length === 0) break;
      for (const pid of others) {
        signalProcess(pid, 'SIGSTOP');
        stopped.add(pid);
      }
    }
    await removeCgroup(this.#deps.clock, cgroup, 0);
  }

  /**
   * What the program has left belongs to the container from now on. Idempotent. @throws
   * ContainerError
   */
  async release({ run, id }: ExecId): Promise<void> {
    const { clock } = this.#deps;
    const parent = this.#needCgroup(run);
    const cgroup = join(parent, id);
    await removeWhenEmpty(clock, cgroup, {
      until: clock.now() + RELEASE_WITHIN_MS,
      empty: async () => {
        // A process that has just ended cannot be moved.
        for (const pid of await pidsIn(cgroup))
          await writeFile(join(parent, 'cgroup.procs'), String(pid)).catch(() => undefined);
      },
    });
  }

  /** Kills the programs that a killed agent has left in a run. @throws ContainerError */
  async killAll(run: string): Promise<void> {
    for (const id of await directoriesIn(this.#needCgroup(run))) await this.kill({ run, id });
  }

  #needCgroup(run: string): string {
    const cgroup = this.#deps.cgroupOf(run);
    if (cgroup === undefined) throw new ContainerError('This server has no control groups');
    return cgroup;
  }
}
