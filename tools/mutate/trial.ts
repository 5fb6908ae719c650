/**
 * Runs one test file of the copy alone, and ends it with all its child processes when its time is
 * over.
 */
import { spawn } from 'node:child_process';
import path from 'node:path';
import { systemClock } from '../../lib/platform/clock.ts';

export interface TrialOptions {
  root: string;
  env: NodeJS.ProcessEnv;
  limitMs: number;
}

export interface Trial {
  outcome: 'passed' | 'failed' | 'timed out';
  ms: number;
}

export async function runTrial(test: string, { root, env, limitMs }: TrialOptions): Promise<Trial> {
  const began = systemClock.now();
  const child = spawn(process.execPath, [...process.execArgv, test], {
    cwd: root,
    // The first failure is enough. The compile cache is in the copy, because the project's own
    // would keep every mutant.
    env: {
      ...env,
      TAP_BAIL: '1',
      TAP_TIMEOUT: String(limitMs / 1000),
      NODE_COMPILE_CACHE: path.join(root, 'compile-cache'),
    },
    stdio: 'ignore',
    detached: true,
  });
  let isOver = false;
  const timer = systemClock.after(limitMs, () => {
    isOver = true;
    end(child.pid);
  });
  const code = await new Promise<number | null>((resolve) => {
    child.once('exit', resolve);
    child.once('error', () => resolve(-1));
  });
  timer.cancel();
  end(child.pid);
  const outcome = isOver ? 'timed out' : code === 0 ? 'passed' : 'failed';
  return { outcome, ms: systemClock.now() - began };
}

/** Kills the process and all that remain of its group. */
function end(pid: number | undefined): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, 'SIGKILL');
  } catch {
    // No process of the group is left.
  }
}
