import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { COMPUTING_TIMEOUT_MS } from '../support/patience.ts';
import { planOf } from './plan.ts';
import { Simulation } from './run.ts';

const SEED = '4';

t.setTimeout(COMPUTING_TIMEOUT_MS);

t.test('a seed gives the same world each time, to the byte', async (t) => {
  const simulation = await Simulation.open();
  t.teardown(() => simulation.close());
  const lines: string[] = [];
  const first = await simulation.run(SEED, (line) => lines.push(line));
  const other = await simulation.run('5');
  const again: string[] = [];
  const second = await simulation.run(SEED, (line) => again.push(line));
  t.ok(lines.length > 1_000, 'the trace has frames and statements');
  t.strictSame(again, lines, 'in the same process, after another world');
  t.equal(second.outcome.digest, first.outcome.digest);
  t.not(other.outcome.digest, first.outcome.digest);
  const main = fileURLToPath(new URL('./main.ts', import.meta.url));
  const said = execFileSync(process.execPath, [main, '--seed', SEED], { encoding: 'utf8' });
  t.match(said, `digest ${first.outcome.digest}`, 'in another process');
});

t.test('a plan with a part left out keeps the rest unchanged', async (t) => {
  const plan = planOf(SEED);
  t.same(planOf(SEED), plan);
  const simulation = await Simulation.open();
  t.teardown(() => simulation.close());
  const { outcome } = await simulation.runPlan({ ...plan, faults: [], operations: plan.operations.slice(0, 3) });
  t.strictSame(outcome.violations, []);
});
