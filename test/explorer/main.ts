/**
 * `npm run explore`: explores the small worlds and prints a line for each. See
 * docs/testing/explorer.md.
 */
import { parseArgs } from 'node:util';
import type { Exploration } from './explorer.ts';
import { brokenWorlds, deepPlans, plans } from './plans.ts';

const USAGE = `npm run explore -- [OPTION]... [WORD]...   explores every interleaving of small worlds, and prints a line for each world

  WORD                 only worlds (or defects) whose names contain every WORD
  --deep               larger worlds as well
  --defects            instead: worlds with a deliberate defect, each with the shortest path that finds it
  --help               this text

exit code: 0 nothing found (with --defects: each was found), 1 otherwise`;

const { values, positionals } = parseArgs({
  options: {
    deep: { type: 'boolean', default: false },
    defects: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
  allowPositionals: true,
});
const isWanted = (name: string): boolean => positionals.every((word) => name.includes(word));
let wrong = 0;

if (values.help) console.log(USAGE);
else if (values.defects) showDefects();
else walk();
process.exitCode = wrong > 0 ? 1 : 0;

function walk(): void {
  console.log(row(['world', 'contents', 'states', 'transitions', 'depth', 'ends', 'CPU']));
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
