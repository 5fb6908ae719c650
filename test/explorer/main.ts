/**
 * `npm run explore`: explores the small worlds and prints a line for each; `-- --deep` larger ones
 * as well; `-- --defects` the deliberate defects, each with its trace. Other words select worlds
 * whose names contain them. Exit code 1: something is wrong.
 */
import { parseArgs } from 'node:util';
import type { Exploration } from './explorer.ts';
import { brokenWorlds, deepPlans, plans } from './plans.ts';

const { values, positionals } = parseArgs({
  options: { deep: { type: 'boolean', default: false }, defects: { type: 'boolean', default: false } },
  allowPositionals: true,
});
const isWanted = (name: string): boolean => positionals.every((word) => name.includes(word));
let wrong = 0;

if (values.defects) showDefects();
else walk();
process.exitCode = wrong > 0 ? 1 : 0;

function walk(): void {
  console.log(row(['world', 'in it', 'states', 'transitions', 'depth', 'ends', 'CPU']));
  console.log('|---|---|---:|---:|---:|---:|---:|');
  for (const { name, bounds, explore } of [...plans, ...(values.deep ? deepPlans : [])]) {
    if (!isWanted(name)) continue;
    const found = explore();
    const { states, transitions, depth, ends, cpuMs } = found;
    console.log(
      row([name, bounds, ...[states, transitions, depth, ends].map(String), `${(cpuMs / 1000).toFixed(1)} s`]),
    );
    if (found.defect !== undefined) complain(found);
  }
}

function showDefects(): void {
  for (const { defect, run, complaint } of brokenWorlds) {
    if (!isWanted(defect)) continue;
    const found = run();
    console.log(`\n${defect}: ${found.defect?.length ?? 'not found'} steps, ${found.states} states`);
    console.log(found.defect?.trace.join('\n') ?? '');
    if (!complaint.test(found.defect?.complaint ?? '')) wrong += 1;
  }
}

function complain({ defect }: Exploration): void {
  wrong += 1;
  console.log(`\n${defect?.complaint}\n${defect?.trace.join('\n')}\n`);
}

function row(cells: readonly string[]): string {
  return `| ${cells.join(' | ')} |`;
}
