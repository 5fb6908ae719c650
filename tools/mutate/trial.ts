/**
 * Runs one test file of the copy alone, and ends it with all its child processes when its time is
 * over.
 */
import { spawn } from 'node:child_process';
import { closeSync, openSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { systemClock } from '../../lib/platform/time/clock.ts';
import { failuresOf } from '../../tools/test/tap-report.ts';

export interface TrialOptions {
  root: string;
  env: NodeJS.ProcessEnv;
  limitMs: number;
}

export interface Trial {
  outcome: 'passed' | 'failed' | 'timed out';
  ms: number;
  /** The first failed assertion, with its enclosing tests. */
  failure?: string;
}

const MAX_FAILURE_CHARS = 300;
/** How long a test waits in vain for an event, of which most mutants stop some. */
const HANG_MS = 10_000;
/** The messages of tap, and of `until` in test/support, for a wait that gave up. */
const WAITED_IN_VAIN = /^timeout!|waited \d+ ms in vain|\bTimeoutError\b|aborted due to timeout/;

export async function runTrial(test: string, { root, env, limitMs }: TrialOptions): Promise<Trial> {
  const began = systemClock.now();
  const outputFile = path.join(root, 'trial-output');
  const output = openSync(outputFile, 'w');
  const child = spawn(process.execPath, [...process.execArgv, test], {
    cwd: root,
    // The first failure is enough. The compile cache is in the copy, because the project's own
    // would keep every mutant.
    env: {
      ...env,
      TAP_BAIL: '1',
      TAP_TIMEOUT: String(limitMs / 1000),
      CNAPI_TEST_HANG_MS: String(HANG_MS),
      NODE_COMPILE_CACHE: path.join(root, 'compile-cache'),
    },
    // A file, because programs that the test has started may hold a pipe open after its end.
    stdio: ['ignore', output, 'ignore'],
    detached: true,
  });
  closeSync(output);
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
  const ms = systemClock.now() - began;
  if (isOver) return { outcome: 'timed out', ms };
  return code === 0 ? { outcome: 'passed', ms } : { ...failureIn(readFileSync(outputFile, 'utf8'), test), ms };
}

/**
 * Tells an assertion that found something wrong from one that only waited in vain: on a busy
 * machine the latter proves less.
 */
export function failureIn(tap: string, test: string): Pick<Trial, 'outcome' | 'failure'> {
  // tap indents the tests of a file when it runs several files.
  const [first = ''] = failuresOf(
    test,
    `# Subtest: ${test}\n${tap}`.split('\n').map((line, index) => (index === 0 ? line : `    ${line}`)),
  );
  const failure = first.slice(0, MAX_FAILURE_CHARS);
  const assertion = failure.split(' › ').at(-1) ?? '';
  return { outcome: WAITED_IN_VAIN.test(assertion) ? 'timed out' : 'failed', failure };
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
