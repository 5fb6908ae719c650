/**
 * `files.ts JOBS TIMEOUT FILE...`: runs test files with tap, JOBS at a time, in this order, and
 * prints their TAP. A file may take TIMEOUT seconds. `tap run` would do the same, but loads its
 * recorder of coverage and its mocks into each test file and into each Node that a test starts. A
 * start of an instance then costs half as much again, and no test here uses either.
 */
import path from 'node:path';
import process from 'node:process';
import t from 'tap';

const root = path.resolve(import.meta.dirname, '../..');
const [jobs, timeoutS, ...files] = process.argv.slice(2);
const env: NodeJS.ProcessEnv = { ...process.env, TAP_TIMEOUT: timeoutS };
// tap adds its recorder to NODE_OPTIONS; `env` sets again what the caller gave.
const program = ['env', `NODE_OPTIONS=${env.NODE_OPTIONS ?? ''}`, process.execPath, ...process.execArgv] as const;

t.setTimeout(0);
t.jobs = Math.min(Number(jobs), files.length);
t.plan(files.length);
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => stop(signal));
for (const file of files) {
  const [command, ...args] = [...program, file];
  const options = { cwd: root, env, stdio: 'inherit', timeout: Number(timeoutS) * 1000, buffered: true } as const;
  void t.spawn(command, args, { ...options, at: null, stack: '', name: file });
}

/** Ends with the files that run; the others do not start. */
function stop(signal: NodeJS.Signals): void {
  for (const { proc } of [...t.pool, ...t.subtests] as { proc?: { kill(signal: string): void } }[]) proc?.kill(signal);
  process.exit(1);
}
