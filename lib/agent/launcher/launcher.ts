/**
 * Starts the agent, in the version that the record of versions names, and goes back to the version
 * before if a new one does not come up. Owned by main.ts of this folder, which the service manager
 * starts. agent-versions.ts has the states; docs/agent-packages.md.
 *
 *     start ──► agent runs ── it exits ──► settled: exit like it, and the service manager starts again
 *       ▲                                  staged:  start the new version ──┐
 *       │                                  trial:   roll back ──────────────┤
 *       └───────────────────────────────────────────────────────────────────┘
 *
 * A launcher that dies takes no decision back: the record says how to continue. Its agent notices
 * that the channel to it is closed, and stops. The next launcher waits for that.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Logger } from '../../platform/log.ts';
import type { Clock } from '../../platform/time/clock.ts';
import { lockHolder } from '../directory-lock.ts';
import { type InstalledVersion, versionToRun } from '../versions/agent-versions.ts';
import { CONFIRMED, STAGED } from '../versions/trial.ts';
import type { VersionsFile } from '../versions/versions-file.ts';

export interface AgentExit {
  code: number | null;
  signal: NodeJS.Signals | null;
}

interface LauncherDeps {
  clock: Clock;
  log: Logger;
  versions: VersionsFile;
  /** The agent's data directory, absolute. */
  data: string;
  /** The version of the launcher's own installation, and its program of the agent. */
  base: { version: string; program: string };
  /** Passed to each agent as they are. */
  args: readonly string[];
  /** A new version must have come up within this time. */
  trialMs: number;
}

/** How long an agent may take to stop before it is killed. */
const STOP_WITHIN_MS = 30_000;
const LOOK_AGAIN_MS = 100;

export class Launcher {
  readonly #deps: LauncherDeps;
  #child: ChildProcess | undefined;
  #isStopping = false;

  constructor(deps: LauncherDeps) {
    this.#deps = deps;
  }

  /** Resolves when an agent has exited and no other version is to be started. */
  async run(): Promise<AgentExit> {
    for (;;) {
      await this.#waitForOtherAgent();
      const installed = await this.#next();
      if (this.#isStopping) return { code: 0, signal: null };
      const exit = await this.#runAgent(installed);
      if (this.#isStopping || !(await this.#continues(exit))) return exit;
    }
  }

  /** Passes a signal on; no other version is started after that. */
  stop(signal: NodeJS.Signals): void {
    this.#isStopping = true;
    this.#child?.kill(signal);
  }

  /** The agent of a launcher that was killed. */
  async #waitForOtherAgent(): Promise<void> {
    const { clock, data, log } = this.#deps;
    let told = false;
    for (;;) {
      const holder = await lockHolder(data);
      if (holder === undefined || this.#isStopping) return;
      if (!told) log.warn({ pid: holder }, 'launcher: waiting for another agent on this data directory to stop');
      told = true;
      await clock.sleep(LOOK_AGAIN_MS);
    }
  }

  async #next(): Promise<InstalledVersion | null> {
    const { versions, base, log } = this.#deps;
    await versions.read();
    await versions.step({ type: 'base', version: base.version });
    for (;;) {
      const before = versions.versions;
      const after = await versions.step({ type: 'start' });
      if (after.ends.length > before.ends.length || before.change.name !== after.change.name) this.#logChange();
      const installed = versionToRun(after);
      if (installed === null || versions.isInstalled(installed)) return installed;
      log.error({ version: installed.version }, 'launcher: the files of this version are gone');
      const isTrial = after.change.name === 'trial';
      await versions.step(isTrial ? { type: 'fail', reason: 'its files are gone' } : { type: 'lost' });
    }
  }

  async #runAgent(installed: InstalledVersion | null): Promise<AgentExit> {
    const { versions, base, args, log } = this.#deps;
    const program = installed === null ? base.program : versions.programOf(installed);
    const child = spawn(process.execPath, [...process.execArgv, program, ...args], {
      stdio: ['inherit', 'inherit', 'inherit', 'ipc'],
    });
    this.#child = child;
    const watch = versions.versions.change.name === 'trial' ? this.#watchTrial(child) : undefined;
    const stopWatch = this.#watchStop(child);
    log.info({ version: installed?.version ?? base.version, pid: child.pid }, 'launcher: agent started');
    try {
      const [code, signal] = (await once(child, 'exit')) as [number | null, NodeJS.Signals | null];
      return { code, signal };
    } finally {
      this.#child = undefined;
      watch?.end();
      stopWatch.end();
    }
  }

  /** Kills an agent that has staged the next version and does not stop. */
  #watchStop(child: ChildProcess): { end(): void } {
    const { clock, log } = this.#deps;
    let kill = { cancel: () => {} };
    child.on('message', (message) => {
      if (message !== STAGED) return;
      kill.cancel();
      kill = clock.after(STOP_WITHIN_MS, () => {
        log.error({ pid: child.pid }, 'launcher: the agent has staged a version and did not stop in time');
        child.kill('SIGKILL');
      });
    });
    return { end: () => kill.cancel() };
  }

  /** Ends an agent that has not confirmed its version in time. */
  #watchTrial(child: ChildProcess): { end(): void } {
    const { clock, log, trialMs } = this.#deps;
    let kill = { cancel: () => {} };
    const timer = clock.after(trialMs, () => {
      log.error({ pid: child.pid }, 'launcher: the new version did not start in time');
      child.kill('SIGTERM');
      kill = clock.after(STOP_WITHIN_MS, () => void child.kill('SIGKILL'));
    });
    child.on('message', (message) => {
      if (message === CONFIRMED) timer.cancel();
    });
    return {
      end() {
        timer.cancel();
        kill.cancel();
      },
    };
  }

  /** Whether an agent is to be started after this exit. */
  async #continues({ code, signal }: AgentExit): Promise<boolean> {
    const { versions, trialMs } = this.#deps;
    const { change } = await versions.read();
    if (change.name === 'settled') return false;
    if (change.name === 'staged') return true;
    const how = signal === null ? `exited with code ${code}` : `was ended by ${signal}`;
    const reason = `it ${how} before it had been connected to an instance for long enough (${trialMs / 1000} s at most)`;
    await versions.step({ type: 'fail', reason });
    this.#logChange();
    return true;
  }

  #logChange(): void {
    const { change, ends } = this.#deps.versions.versions;
    const fields = change.name === 'settled' ? ends.at(-1) : { version: change.next.version, task: change.task };
    this.#deps.log.info({ ...fields }, `launcher: agent version ${change.name}`);
  }
}
