import { planOf } from './plan.ts';
import { SimPostgres } from './sim-postgres.ts';
import { World } from './world.ts';

const seeds = process.argv.slice(2).filter((a) => !a.startsWith('--'));
const trace = process.argv.includes('--trace');
const pg = await SimPostgres.open();
for (const seed of seeds) {
  const t = performance.now();
  const plan = planOf(seed);
  const world = new World(plan, pg, trace ? (l) => console.log(l) : undefined);
  const o = await world.run();
  console.log(
    seed,
    plan.profile,
    plan.instances,
    plan.agents,
    plan.faults.length,
    plan.operations.length,
    JSON.stringify({
      v: o.violations.slice(0, 3),
      ms: Math.round(o.virtualMs),
      ev: o.events,
      c: o.counts,
      d: o.digest.slice(0, 8),
    }),
    Math.round(performance.now() - t),
  );
  if (o.violations.length && process.argv.includes('--story')) console.log(o.story.join('\n'));
}
process.exit();
