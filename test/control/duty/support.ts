/** Instances that carry out duties over one database; the test decides when work is done. */
import { randomUUID } from 'node:crypto';
import { type DutyHandler, DutyLostError, type HeldDuty } from '../../../lib/control/duty/duty.ts';
import { DutyKeeper } from '../../../lib/control/duty/duty-keeper.ts';
import { type Logger, silentLogger } from '../../../lib/platform/log.ts';
import type { Queryable } from '../../../lib/platform/postgres/database.ts';
import { systemRandom } from '../../../lib/platform/random.ts';
import { systemClock } from '../../../lib/platform/time/clock.ts';
import { createMemoryBus, type MemoryHub } from '../../support/memory-bus.ts';
import type { Teardown } from '../../support/postgres.ts';
import { liveRun } from '../legacy/support/legacy-seats.ts';

export const KIND = 'test';

/** Work in progress at one instance. */
export interface Working {
  duty: HeldDuty;
  signal: AbortSignal;
  /** Ends the work, or makes it fail with `error`. */
  end(error?: Error): void;
}

/** A handler whose work ends when the test says so, or when it is aborted. */
export class ScriptedHandler implements DutyHandler {
  readonly working = new Map<string, Working>();
  /** All generations that were begun here. */
  readonly begun: HeldDuty[] = [];
  /** The work does not stop when it is aborted. */
  isDeaf = false;

  carryOut(duty: HeldDuty, signal: AbortSignal): Promise<void> {
    this.begun.push(duty);
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const end = (error?: Error) => (error === undefined ? resolve() : reject(error));
    this.working.set(duty.id, { duty, signal, end });
    if (!this.isDeaf) signal.addEventListener('abort', () => reject(signal.reason));
    return promise.finally(() => this.working.delete(duty.id));
  }
}

export interface Instance {
  run: string;
  isHealthy: boolean;
  handler: ScriptedHandler;
  keeper: DutyKeeper;
}

interface InstanceOptions {
  limit?: number;
  patienceMs?: number;
  abortWithinMs?: number;
  log?: Logger;
  slowPollMs?: number;
  isHealthy?: boolean;
}

export async function startInstance(
  t: Teardown,
  { database, hub }: { database: Queryable; hub: MemoryHub },
  { slowPollMs = 60_000, isHealthy = true, ...options }: InstanceOptions = {},
): Promise<Instance> {
  const made = { run: await liveRun(database), isHealthy, handler: new ScriptedHandler() };
  const bus = createMemoryBus({ hub, clock: systemClock, random: systemRandom, log: silentLogger });
  await bus.start();
  const keeper = new DutyKeeper({
    database,
    bus,
    clock: systemClock,
    log: silentLogger,
    config: { slowPollMs, slowPollNoBusMs: slowPollMs },
    run: () => instance.run,
    isHealthy: () => instance.isHealthy,
    ...options,
  });
  const instance: Instance = Object.assign(made, { keeper });
  keeper.start({ [KIND]: made.handler });
  t.teardown(async () => {
    await keeper.stop();
    await bus.stop();
  });
  return instance;
}

export const newIds = (count: number): string[] => Array.from({ length: count }, () => randomUUID());

interface DutyRow {
  state: 'waiting' | 'held' | 'ended';
  run: string | null;
  generation: number;
  failures: number;
}

export async function dutyRow(database: Queryable, id: string): Promise<DutyRow> {
  const { rows } = await database.query<DutyRow>(
    'select state, run, generation, failures from cnapi_duties where id = $1::uuid',
    [id],
  );
  return rows[0] as DutyRow;
}

/** Locks the duty as the function of a write does; false if `duty` is no longer its holder's. */
export async function lockDuty(database: Queryable, { id, run, generation }: HeldDuty): Promise<boolean> {
  const { rows } = await database.query<{ held: boolean }>(
    'select cnapi_lock_duty($1::uuid, $2::uuid, $3::int) as held',
    [id, run, generation],
  );
  return rows[0]?.held === true;
}

/** A write of a holder, as a noun's own function would make it. @throws DutyLostError */
export async function writeAsHolder(database: Queryable, duty: HeldDuty): Promise<void> {
  if (!(await lockDuty(database, duty))) throw new DutyLostError(duty);
}
