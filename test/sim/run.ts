/**
 * Runs worlds, one seed after the other, on one Postgres, and shrinks a failing one until nothing
 * can be left out.
 */
import { type Plan, planOf } from './plan.ts';
import { SimPostgres } from './sim-postgres.ts';
import { type Outcome, World } from './world.ts';

export interface SeedRun {
  plan: Plan;
  outcome: Outcome;
}

export class Simulation {
  readonly #postgres: SimPostgres;
  #world: World | undefined;
  readonly #rejected: (error: unknown) => void;

  private constructor(postgres: SimPostgres) {
    this.#postgres = postgres;
    this.#rejected = (error) => this.#world?.crashed('somebody', error);
    // An unhandled rejection ends a real process.
    process.on('unhandledRejection', this.#rejected);
  }

  static async open(): Promise<Simulation> {
    return new Simulation(await SimPostgres.open());
  }

  async close(): Promise<void> {
    process.off('unhandledRejection', this.#rejected);
    await this.#postgres.close();
  }

  run(seed: string, trace?: (line: string) => void): Promise<SeedRun> {
    return this.runPlan(planOf(seed), trace);
  }

  async runPlan(plan: Plan, trace?: (line: string) => void): Promise<SeedRun> {
    this.#world = new World(plan, this.#postgres, trace);
    return { plan, outcome: await this.#world.run() };
  }

  /**
   * The plan without the parts that the violation does not need: halves of its faults and its work,
   * then quarters, down to single ones.
   */
  async shrink({ plan, outcome }: SeedRun, progress: (plan: Plan) => void): Promise<SeedRun> {
    const invariant = outcome.violations[0]?.invariant;
    let smallest: SeedRun = { plan, outcome };
    const without = async (part: 'faults' | 'operations', from: number, count: number): Promise<boolean> => {
      const left = { ...smallest.plan, [part]: smallest.plan[part].toSpliced(from, count) };
      const tried = await this.runPlan(left);
      if (tried.outcome.violations[0]?.invariant !== invariant) return false;
      smallest = tried;
      progress(tried.plan);
      return true;
    };
    for (const part of ['faults', 'operations'] as const) {
      for (let count = Math.ceil(plan[part].length / 2); count >= 1; count = count === 1 ? 0 : Math.ceil(count / 2)) {
        for (let from = 0; from < smallest.plan[part].length; ) if (!(await without(part, from, count))) from += count;
      }
    }
    return smallest;
  }
}
