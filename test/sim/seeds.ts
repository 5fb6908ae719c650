/** The seeds of `npm test`, in parts that are run beside each other. */
import t from 'tap';
import { Simulation } from './run.ts';

/** What a part must have done at least, so that worlds in which nothing happens do not count. */
const LEAST_PER_SEED = { tasks: 5, executions: 5, tickets: 4, holds: 2, changes: 40 };

/** Seeds `from` to `to`, as subtests of this file. */
export async function testSeeds(from: number, to: number): Promise<void> {
  t.setTimeout(1_800_000);
  const simulation = await Simulation.open();
  t.teardown(() => simulation.close());
  const done = { tasks: 0, executions: 0, tickets: 0, holds: 0, changes: 0 };
  for (let seed = from; seed <= to; seed++) {
    const { outcome } = await simulation.run(String(seed));
    if (outcome.violations.length > 0) t.comment(outcome.story.join('\n'));
    t.strictSame(outcome.violations, [], `seed ${seed}; again: npm run sim -- --seed ${seed}`);
    for (const name of Object.keys(done) as (keyof typeof done)[]) done[name] += outcome.counts[name];
  }
  const seeds = to - from + 1;
  for (const [name, least] of Object.entries(LEAST_PER_SEED))
    t.ok(done[name as keyof typeof done] >= least * seeds, `${name}: ${done[name as keyof typeof done]}`);
}
