/**
 * What an instance of the simulated world does with its duties: writes one step after the other,
 * each fenced as a noun's own function would fence it.
 */
import { type DutyHandler, DutyLostError, type HeldDuty } from '../../lib/control/duty/duty.ts';
import type { Database } from '../../lib/platform/postgres/database.ts';
import { createDuties } from '../support/create-duties.ts';
import type { SimProcess } from './sim-process.ts';
import type { World } from './world.ts';

export const DUTY_KIND = 'sim';
/** The message of a failure that is planned. */
export const SIMULATED = 'simulated';

/** Added to the product's schema. */
export const dutyStepsSql = `
create table cnapi_sim_duty_steps (
  duty uuid not null, step int not null, run uuid not null, generation int not null, primary key (duty, step)
);
create function cnapi_sim_duty_step(p_duty uuid, p_run uuid, p_generation int, p_step int) returns boolean
language plpgsql volatile as $$
begin
  if not cnapi_lock_duty(p_duty, p_run, p_generation) then
    return false;
  end if;
  insert into cnapi_sim_duty_steps (duty, step, run, generation) values (p_duty, p_step, p_run, p_generation)
    on conflict do nothing;
  return true;
end $$;`;

export class SimDutyHandler implements DutyHandler {
  /** The work that its process does now. */
  readonly working = new Set<HeldDuty>();
  readonly #world: World;
  readonly #process: SimProcess;
  readonly #database: Database;

  constructor(world: World, process: SimProcess, database: Database) {
    this.#world = world;
    this.#process = process;
    this.#database = database;
  }

  /** Creates the duty like a caller's request. It may fail. */
  async create(id: string): Promise<void> {
    await createDuties(this.#database, DUTY_KIND, [id]);
  }

  async carryOut(duty: HeldDuty, signal: AbortSignal): Promise<void> {
    this.working.add(duty);
    try {
      await this.#workOn(duty, signal);
    } finally {
      this.working.delete(duty);
    }
  }

  async #workOn(duty: HeldDuty, signal: AbortSignal): Promise<void> {
    const planned = this.#world.workload.dutyOf(duty.id);
    if (planned === undefined) throw new Error(`duty ${duty.id} was not created here`);
    const { steps, stepMs, failures } = planned;
    const { rows } = await this.#database.query<{ done: number }>(
      'select count(*)::int as done from cnapi_sim_duty_steps where duty = $1::uuid',
      [duty.id],
    );
    const done = rows[0]?.done ?? 0;
    for (let step = done + 1; step <= steps; step++) {
      await this.#process.clock.sleep(stepMs, signal);
      signal.throwIfAborted();
      if (duty.failures < failures && step > steps / 2) throw new SimulatedFailure();
      const written = await this.#database.query<{ held: boolean }>(
        'select cnapi_sim_duty_step($1::uuid, $2::uuid, $3::int, $4::int) as held',
        [duty.id, duty.run, duty.generation, step],
      );
      if (written.rows[0]?.held !== true) throw new DutyLostError(duty);
    }
  }
}

/** The keeper logs it, and the work continues after a pause. */
class SimulatedFailure extends Error {
  constructor() {
    super(SIMULATED);
  }
}
