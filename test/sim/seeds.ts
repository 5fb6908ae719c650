/** The seeds of `npm test`, in parts that run in parallel. */
import t from 'tap';
import { COMPUTING_TIMEOUT_MS } from '../support/patience.ts';
import { Simulation } from './run.ts';
import { ANNEALER, ARRIVING, DUTIES, PUSH, RARE, VMS, WORKFLOWS } from './seed-kinds.ts';
import type { Counts } from './world.ts';

/** The minimum that a part must have done, so that worlds in which nothing happens do not count. */
const LEAST_PER_SEED: Partial<Counts> = {
  tasks: 5,
  cancels: 0.3,
  executions: 5,
  tickets: 4,
  holds: 2,
  renewals: 0.2,
  drains: 0.15,
  shed: 0.05,
  changes: 40,
};

/** The least counts of rare seeds, which are few. */
const LEAST_PER_RARE_SEED: Partial<Counts> = { tasks: 5, executions: 5, tickets: 4, changes: 40 };

/**
 * The least counts of seeds in which many agents arrive and do little else: each agent's row
 * changes twice.
 */
const LEAST_PER_ARRIVING_SEED: Partial<Counts> = { tasks: 1, changes: 1_200 };

/** The least counts of seeds with duties, which do little else. */
const LEAST_PER_DUTIES_SEED: Partial<Counts> = { duties: 6, takeovers: 1, changes: 100 };

/** The least counts of seeds with push jobs, which do little else. */
const LEAST_PER_PUSH_SEED: Partial<Counts> = {
  pushJobs: 6,
  pushRuns: 10,
  pushChanges: 1,
  pushTickets: 0.5,
  aborts: 1,
  changes: 100,
};

/** The least counts of seeds with VMs, which do little else. */
const LEAST_PER_VMS_SEED: Partial<Counts> = { vmsCreated: 4, vmChanges: 8, changes: 60 };

/** The least counts of seeds with workflow jobs, which do little else. */
const LEAST_PER_WORKFLOWS_SEED: Partial<Counts> = {
  workflowJobs: 4,
  reboots: 2,
  rebooted: 0.5,
  resumes: 0.5,
  changes: 60,
};

/** The least counts of seeds with deployments, which do little else. */
const LEAST_PER_ANNEALER_SEED: Partial<Counts> = { noderoleRuns: 10, activeNoderoles: 4, staleRuns: 0.5, changes: 100 };

const LEAST: Record<string, Partial<Counts>> = {
  [RARE]: LEAST_PER_RARE_SEED,
  [ARRIVING]: LEAST_PER_ARRIVING_SEED,
  [DUTIES]: LEAST_PER_DUTIES_SEED,
  [PUSH]: LEAST_PER_PUSH_SEED,
  [VMS]: LEAST_PER_VMS_SEED,
  [WORKFLOWS]: LEAST_PER_WORKFLOWS_SEED,
  [ANNEALER]: LEAST_PER_ANNEALER_SEED,
};

/** Seeds `from` to `to`, common ones or of another kind. */
export function testSeeds(from: number, to: number, kind = ''): void {
  const least = LEAST[kind] ?? LEAST_PER_SEED;
  t.setTimeout(COMPUTING_TIMEOUT_MS);
  t.test(
    `every invariant holds in seeds ${kind}${from} to ${kind}${to}`,
    { timeout: COMPUTING_TIMEOUT_MS },
    async (t) => {
      const simulation = await Simulation.open();
      t.teardown(() => simulation.close());
      const names = Object.keys(least) as (keyof Counts)[];
      const done = Object.fromEntries(names.map((name) => [name, 0])) as unknown as Counts;
      for (let seed = from; seed <= to; seed++) {
        const { outcome } = await simulation.run(`${kind}${seed}`);
        if (outcome.violations.length > 0) t.comment(outcome.story.join('\n'));
        t.strictSame(outcome.violations, [], `again: npm run sim -- --seed ${kind}${seed}`);
        for (const name of names) done[name] += outcome.counts[name];
      }
      for (const name of names) t.ok(done[name] >= (least[name] ?? 0) * (to - from + 1), `${name}: ${done[name]}`);
    },
  );
}
