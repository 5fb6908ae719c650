/**
 * Shows that the simulation can fail: each deliberate defect is found within 200 seeds. Prints the
 * table of docs/testing/simulation.md.
 */
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import t from 'tap';
import { COMPUTING_TIMEOUT_MS } from '../support/patience.ts';
import { fileWith } from '../support/product-text.ts';
import { INVARIANTS } from './checks.ts';
import { changesOf, type Defect, defects } from './defects.ts';

const SEEDS = 200;
const main = fileURLToPath(new URL('./main.ts', import.meta.url));

t.setTimeout(COMPUTING_TIMEOUT_MS);

t.test('each invariant has two defects, and the text that each changes exists', async (t) => {
  for (const invariant of INVARIANTS)
    t.ok(defects.filter(({ breaks }) => breaks === invariant).length >= 2, `two break ${invariant}`);
  for (const defect of defects) for (const { find } of changesOf(defect)) t.ok(fileWith(find), defect.name);
});

/** The number of defects that each invariant has found. */
const found = new Map<string, number>();

// Two at a time: when the other files are done, this one keeps both cores of a small machine busy.
t.test('a seed finds each defect', { jobs: 2 }, async (t) => {
  for (const [number, defect] of defects.entries()) {
    t.test(`a seed finds the defect: ${defect.name}`, { buffered: true }, async (t) => {
      const kind = defect.kind === undefined ? [] : [`--${defect.kind.slice(0, -1)}`];
      const from = String(defect.firstSeed);
      const { code, output } = await find(number, '--from', from, '--seeds', String(SEEDS), ...kind);
      const seed = /^seed (?:[a-z]+-)?(\d+) /m.exec(output)?.[1];
      const [, violated, what] = /^ {2}(I\d+) at [\d.]+ s: (.*)$/m.exec(output) ?? [];
      t.equal(code, 1, 'an invariant was violated');
      t.ok(Number(seed) < defect.firstSeed + SEEDS, `by seed ${seed}`);
      found.set(violated ?? '', (found.get(violated ?? '') ?? 0) + 1);
      t.comment(tableRow(defect, { seed, violated, what }));
    });
  }
});

t.test('each invariant finds at least two defects', async (t) => {
  for (const invariant of INVARIANTS) t.ok((found.get(invariant) ?? 0) >= 2, `${invariant}: ${found.get(invariant)}`);
});

t.test('a violation is reported with all unneeded faults and work left out', async (t) => {
  const number = defects.findIndex(({ name }) => name === 'a release activates no ticket');
  const { output } = await find(number, '--seed', '2', '--shrink');
  t.match(output, /shrinks to 0 faults/, 'it needs no fault');
  t.match(output, /^seed 2 .* 0 faults, \d operations?\):$/m);
  t.match(output, /^ {2}I4 at /m, 'it is still the same violation');
});

async function find(number: number, ...options: string[]): Promise<{ code: number; output: string }> {
  // One seed almost always suffices, and then optimising PGlite's code costs more CPU time than it
  // saves.
  const once = options.includes('--shrink') ? [] : ['--liftoff-only'];
  const args = [...once, main, '--defect', String(number), ...options];
  try {
    const { stdout } = await promisify(execFile)(process.execPath, args, { maxBuffer: 64 * 1024 * 1024 });
    return { code: 0, output: stdout };
  } catch (error) {
    const { code, stdout, stderr } = error as { code: number; stdout: string; stderr: string };
    return { code, output: `${stdout}${stderr}` };
  }
}

function tableRow(defect: Defect, found: Record<'seed' | 'violated' | 'what', string | undefined>): string {
  return `| ${defect.breaks} | ${defect.name} | ${found.seed} | ${found.violated}: ${found.what?.slice(0, 120)} |`;
}
