/**
 * `files.ts JOBS TIMEOUT FILES...`: runs test files with tap, JOBS processes at a time, in this
 * order, and prints their TAP. FILES is a JSON list of the files of one process (sharing.ts). A
 * file may take TIMEOUT seconds. `tap run` would do the same, but loads its recorder of coverage
 * and its mocks into each test file and into each Node that a test starts. A start of an instance
 * then costs half as much again, and no test here uses either.
 */
import path from 'node:path';
import process from 'node:process';
import t from 'tap';
import { nameOfGroup } from './tap-report.ts';

const root = path.resolve(import.meta.dirname, '../..');
const [jobs, timeoutS, ...lists] = process.argv.slice(2);
const groups = lists.map((list): string[] => JSON.parse(list));
const env: NodeJS.ProcessEnv = { ...process.env, TAP_TIMEOUT: timeoutS };
// tap adds its recorder to NODE_OPTIONS; `env` sets again what the caller gave.
const program = ['env', `NODE_OPTIONS=${env.NODE_OPTIONS ?? ''}`, process.execPath, ...process.execArgv] as const;

t.setTimeout(0);
t.jobs = Math.min(Number(jobs), groups.length);
t.plan(groups.length);
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => stop(signal));
for (const files of groups) {
  const isShared = files.length > 1;
  const [command, ...args] = [...program, ...(isShared ? ['tools/test/file-tests.ts'] : files)];
  const timeout = Number(timeoutS) * 1000 * files.length;
  const given = isShared ? { ...env, TEST_FILES: JSON.stringify(files) } : env;
  const options = { cwd: root, env: given, stdio: 'inherit', timeout, buffered: true } as const;
  void t.spawn(command, args, { ...options, at: null, stack: '', name: nameOfGroup(files) });
}

/** Ends with the files that run; the others do not start. */
function stop(signal: NodeJS.Signals): void {
  for (const { proc } of [...t.pool, ...t.subtests] as { proc?: { kill(signal: string): void } }[]) proc?.kill(signal);
  process.exit(1);
}
