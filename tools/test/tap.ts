/**
 * Runs the test files with tap and prints the progress: one line per file, the full output of a
 * file that failed.
 */
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { TapReport, type TapTotals } from './tap-report.ts';

export interface TapRun {
  root: string;
  /** Empty: all files that `.taprc` includes. */
  files: readonly string[];
  env: NodeJS.ProcessEnv;
}

export async function runTap({ root, files, env }: TapRun): Promise<TapTotals> {
  const args = ['node_modules/tap/dist/esm/run.mjs', '--reporter=tap', ...files];
  const child = spawn(process.execPath, args, { cwd: root, env, stdio: ['ignore', 'pipe', 'inherit'] });
  const signals = ['SIGINT', 'SIGTERM'] as const;
  let isStopped = false;
  const stop = (signal: NodeJS.Signals) => {
    isStopped = true;
    child.kill(signal);
  };
  for (const signal of signals) process.on(signal, stop);
  const ended = new Promise<boolean>((resolve) => child.once('close', (code) => resolve(code === 0)));
  const report = new TapReport((text) => console.log(text));
  for await (const line of createInterface({ input: child.stdout })) report.take(line);
  const totals = report.end(await ended);
  for (const signal of signals) process.off(signal, stop);
  return isStopped ? { ...totals, isWhole: false } : totals;
}
