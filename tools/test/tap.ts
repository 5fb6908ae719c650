/**
 * Runs the test files with tap, each kind in a lane of its own (lanes.ts), and prints the progress:
 * one line per file, the full output of a file that failed. After a run that was cut short, no
 * further lane starts.
 */
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { systemClock } from '../../lib/platform/time/clock.ts';
import { type Lane, lanesOf } from './lanes.ts';
import { longestFirst } from './order.ts';
import { durationOf } from './processor-time.ts';
import { processesOf } from './sharing.ts';
import { TapReport, type TapTotals, totalOf } from './tap-report.ts';

export interface TapRun {
  root: string;
  files: readonly string[];
  env: NodeJS.ProcessEnv;
  /** Default: to stdout. */
  print?(line: string): void;
}

export async function runTap({ root, files, env, print = console.log }: TapRun): Promise<TapTotals> {
  return runLanes(lanesOf(longestFirst(files)), (lane) => runLane(lane, { root, env, print }));
}

/** Runs the lanes beside each other; a lane that starts after another one waits for its end. */
export async function runLanes(lanes: readonly Lane[], run: (lane: Lane) => Promise<TapTotals>): Promise<TapTotals> {
  const runs = new Map<Lane['name'], Promise<TapTotals>>();
  const runAfter = async (lane: Lane, before: Promise<TapTotals> | undefined) =>
    before === undefined || (await before).isWhole ? run(lane) : totalOf([]);
  for (const lane of lanes) runs.set(lane.name, runAfter(lane, lane.after && runs.get(lane.after)));
  return totalOf(await Promise.all(runs.values()));
}

async function runLane(
  { name, jobs, niceness, timeoutS, files }: Lane,
  { root, env, print }: Required<Omit<TapRun, 'files'>>,
): Promise<TapTotals> {
  const began = systemClock.now();
  const program = [process.execPath, ...process.execArgv, 'tools/test/files.ts'];
  const groups = processesOf(files).map((group) => JSON.stringify(group));
  const args = ['-n', String(niceness), ...program, String(jobs), String(timeoutS), ...groups];
  const child = spawn('nice', args, { cwd: root, env, stdio: ['ignore', 'pipe', 'inherit'] });
  const signals = ['SIGINT', 'SIGTERM'] as const;
  let isStopped = false;
  const stop = (signal: NodeJS.Signals) => {
    isStopped = true;
    child.kill(signal);
  };
  for (const signal of signals) process.on(signal, stop);
  const ended = new Promise<boolean>((resolve) => child.once('close', (code) => resolve(code === 0)));
  const report = new TapReport(print);
  for await (const line of createInterface({ input: child.stdout })) report.take(line);
  const totals = report.end(await ended);
  if (files.length > 1) print(`lane ${name}: ${files.length} files in ${durationOf(systemClock.now() - began)}`);
  for (const signal of signals) process.off(signal, stop);
  return isStopped ? { ...totals, isWhole: false } : totals;
}
