/**
 * The interface between the containers of an agent and what runs them. linux-runtime.ts is the real
 * one (runc or crun, with conmon); tests have one in memory. Nothing here may
 * block the process that holds the link.
 */
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
  /** It runs in a terminal, and so must `argv`. */
  hasTerminal: boolean;
}

/** How what `argv` started has ended. */
export interface ExecExit {
  /** 128 + N if signal N ended the program. */
  exitCode: number | null;
  /** It was killed, or did not start. */
  killed: boolean;
}

/** How the program has ended, also if what `argv` started was ended before it could say it. */
type ExecOutcome = Pick<ExecExit, 'exitCode'> | 'container-ended' | { notStarted: string };

export interface PreparedExec {
  /** Starts the program, passes on its input and output, and ends as it does. */
  readonly argv: readonly string[];
  /**
   * Resolves when the program has ended, or at the signal. Processes that hold its output may keep
   * what `argv` started running for ever, so end that when its output has come.
   */
  programEnd(signal: AbortSignal): Promise<void>;
  /**
   * Kills the program and all that it has started, before what `argv` started is killed: that
   * holds its input, and it would take that death for the end of its input. @throws ContainerError
   */
  kill(): Promise<void>;
  /**
   * Call it in any case, once nothing that `argv` started runs. If it was killed, all that the program
   * has started is killed. @throws ContainerError if something cannot be removed
   */
  finish(end: ExecExit): Promise<ExecOutcome>;
}

export interface ContainerRuntime {
  /**
   * Makes the root file system and the configuration of the container. What it leaves when it fails
   * is removed by `remove`. @throws ContainerError with the reason
   */
  prepare(spec: ContainerSpec): Promise<void>;
  /** Resolves when the first process runs. @throws ContainerError with the reason; then no part of the run is left */
  start(spec: ContainerSpec, run: number): Promise<void>;
  /** Sends a signal to the first process; to all processes if it is SIGKILL. Ignores a run that has ended. */
  signal(run: RunId, signal: string): Promise<void>;
  /** @throws ContainerError */
  prepareExec(run: RunId, request: ExecRequest): Promise<PreparedExec>;
  usage(run: RunId): Promise<ContainerUsage | undefined>;
  /** Ids on the machine of the processes of a run, that of the first process first; none if it has ended. */
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
