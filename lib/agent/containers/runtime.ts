/**
 * The interface between the containers of an agent and the software that runs them.
 * linux-runtime.ts implements it with runc or crun, and conmon; tests have an implementation in
 * memory. No method may block the process that holds the link.
 *
 * A program that is executed in a running container is started by a process outside of it
 * (`runc exec`), which passes on its input and output and exits as it does. This file calls that
 * the runtime process.
 */
import type { Writable } from 'node:stream';
import type { ContainerSpec, ContainerUsage } from './container.ts';
import type { ContainerExit } from './lifecycle.ts';

/** One start of a container, numbered from 1. */
export interface RunId {
  id: string;
  number: number;
}

/** What exists of a run. */
export type FoundRun = 'running' | 'not-started' | { exit: ContainerExit };

/** Another program in a container. */
export interface ExecRequest {
  args: readonly string[];
  env: Readonly<Record<string, string>>;
  directory: string;
  uid: number;
  gid: number;
  /** The program runs in a terminal, and so must the runtime process. */
  hasTerminal: boolean;
}

/** How the runtime process ended. */
export interface ExecExit {
  /** 128 + N if signal N ended the program. */
  exitCode: number | null;
  /** The runtime process was killed, or did not start. */
  killed: boolean;
}

/** How the program ended, even if the runtime process was killed before it could report that. */
type ExecOutcome = Pick<ExecExit, 'exitCode'> | 'container-ended' | { notStarted: string };

export interface PreparedExec {
  /** Command line of the runtime process. */
  readonly argv: readonly string[];
  /**
   * Resolves when the program has ended, or when the signal fires. The runtime process may run for
   * ever, because other processes hold its output; the caller kills it once the program's output
   * has arrived.
   */
  programEnd(signal: AbortSignal): Promise<void>;
  /**
   * Kills the program and its descendants. Call it before the runtime process is killed: the
   * program would otherwise see the end of its input and could act on that. @throws ContainerError
   */
  kill(): Promise<void>;
  /**
   * Call it in every case, once the runtime process has ended. If that was killed, this kills the
   * program and its descendants. @throws ContainerError if something cannot be removed
   */
  finish(end: ExecExit): Promise<ExecOutcome>;
}

/** The terminal in which the own program of a run runs. Its output is in the log. */
export interface RunConsole {
  /** @throws ContainerError */
  openInput(): Promise<ConsoleInput>;
  resize(size: { columns: number; rows: number }): Promise<void>;
}

/** `broken`: the program that passed the input on has died, and the run goes on. */
export type ConsoleEnd = 'closed' | 'broken';

export interface ConsoleInput {
  readonly input: Writable;
  /** Resolves when nothing more can be written, at the latest when the run has ended. */
  readonly ended: Promise<ConsoleEnd>;
  close(): void;
}

export interface ContainerRuntime {
  /**
   * Makes the root file system and the configuration of the container. After a failure, call
   * `remove` to delete what was made. @throws ContainerError with the reason
   */
  prepare(spec: ContainerSpec): Promise<void>;
  /**
   * Resolves when the first process runs. @throws ContainerError with the reason; nothing of the
   * run is left then
   */

  start(spec: ContainerSpec, run: number): Promise<void>;
  /**
   * Sends a signal to the first process; to all processes if it is SIGKILL. Ignores a run that has
   * ended.
   */
  signal(run: RunId, signal: string): Promise<void>;
  /** @throws ContainerError */
  prepareExec(run: RunId, request: ExecRequest): Promise<PreparedExec>;
  /** Undefined if the run has no terminal. */
  findConsole(run: RunId): Promise<RunConsole | undefined>;
  usage(run: RunId): Promise<ContainerUsage | undefined>;
  /**
   * Ids on the machine of the processes of a run, that of the first process first; none if it has
   * ended.
   */
  processes(run: RunId): Promise<readonly number[]>;
  /** Gives a run the limits of this specification. @throws ContainerError */
  updateLimits(spec: ContainerSpec, run: number): Promise<void>;
  /** Looks for a run that an earlier agent started. */
  find(run: RunId): Promise<FoundRun>;
  /** Reports the end of runs that were started or found; each once. */
  onEnd(listener: (run: RunId, exit: ContainerExit) => void): void;
  /** Ends and removes the processes, interfaces and control groups of a run. Idempotent. */
  cleanUpRun(run: RunId): Promise<void>;
  /** Removes everything of a container, also after a failed `prepare`. Idempotent. */
  remove(id: string): Promise<void>;
  /** Ids of all containers that have left something, also those without a record. */
  leftovers(): Promise<string[]>;
  /** Releases what the runtime itself uses; containers outlive the agent. */
  stop(): Promise<void>;
}
