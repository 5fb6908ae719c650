/** Checks that need no test: programs that examine the source. */
import { execFile } from 'node:child_process';

export interface Check {
  name: string;
  /** Arguments of a run with this same Node, from the project's root. */
  args: readonly string[];
}

export interface Outcome {
  passed: number;
  failed: number;
  /** Descriptions of what failed. */
  failures: readonly string[];
}

export interface CheckResult {
  name: string;
  ok: boolean;
  output: string;
}

export const staticChecks: readonly Check[] = [
  { name: 'type check', args: ['node_modules/typescript/bin/tsc', '-p', '.'] },
  { name: 'lint and format', args: ['node_modules/@biomejs/biome/bin/biome', 'check', '--error-on-warnings', '.'] },
  { name: 'import direction', args: ['tools/imports/main.ts'] },
];

export function runCheck(root: string, { name, args }: Check): Promise<CheckResult> {
  return new Promise((resolve) => {
    const options = { cwd: root, maxBuffer: 64 * 1024 * 1024 };
    execFile(process.execPath, [...process.execArgv, ...args], options, (error, stdout, stderr) =>
      resolve({ name, ok: error === null, output: `${stdout}${stderr}` }),
    );
  });
}
