/**
 * Runs the programs `install` and `uninstall` of packages of other agents, in the same way as
 * commands (machine/command.ts): as a process group, with PATH, HOME and LANG of the agent's
 * environment, and with the beginning and the end of their output. What a program leaves behind
 * that holds its output is killed. If it fails, its whole process group is. Used by
 * other-packages.ts.
 */
import type { Clock } from '../../platform/time/clock.ts';
import type { ProcessGroup } from '../journal/journal.ts';
import type { Machine } from '../machine/machine.ts';
import { PackageRefusedError } from './package-errors.ts';

export type ScriptName = 'install' | 'uninstall';

/** The task that runs the program. */
export interface ScriptCaller {
  taskId: string;
  machine: Pick<Machine, 'execute' | 'endGroup'>;
  signal: AbortSignal;
  /** So that the next process of the agent ends them, if this one dies. */
  journalProcesses(group: ProcessGroup | undefined): Promise<void>;
}

interface PackageScript {
  script: ScriptName;
  name: string;
  version: string;
  /** The directory with the files of the package. */
  directory: string;
}

const WITHIN_MS = 600_000;
const MAX_SHOWN_CHARS = 1_000;

/**
 * @throws PackageRefusedError if it fails, TaskFailure if it cannot be started, or the reason of
 * the signal
 */
export async function runPackageScript(
  { script, name, version, directory }: PackageScript,
  { taskId: id, machine, signal, journalProcesses }: ScriptCaller,
  clock: Clock,
): Promise<void> {
  const late = new AbortController();
  const timer = clock.after(WITHIN_MS, () => late.abort());
  let group: ProcessGroup | undefined;
  const begin = async (started?: ProcessGroup) => {
    group = started;
    await journalProcesses(started);
  };
  const env = { PACKAGE_NAME: name, PACKAGE_VERSION: version, PACKAGE_DIRECTORY: directory };
  try {
    const end = await machine.execute(
      { script: `exec ./${script}\n`, args: [], env, directory },
      { id, signal: AbortSignal.any([signal, late.signal]), begin, output: () => undefined },
    );
    signal.throwIfAborted();
    if (end.exitCode === 0 && !end.killed) return;
    const how = end.killed ? `did not end within ${WITHIN_MS / 1000} s` : `failed with ${shownEnd(end)}`;
    const said = end.stderr.trim().slice(-MAX_SHOWN_CHARS);
    const message = `The program ${script} of ${name} ${version} ${how}: ${said}`;
    throw new PackageRefusedError('PackageScriptFailed', message);
  } catch (error) {
    if (group !== undefined) await machine.endGroup(group);
    throw error;
  } finally {
    timer.cancel();
    if (group !== undefined) await journalProcesses(undefined);
  }
}

function shownEnd({ exitCode, signal }: { exitCode: number | null; signal: string | null }): string {
  if (exitCode === null) return String(signal);
  return `exit code ${exitCode}${signal === null ? '' : ` (${signal})`}`;
}
