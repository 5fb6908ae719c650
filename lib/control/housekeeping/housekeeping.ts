/**
 * Deletes data past its retention in batches, at the times of a cron expression: node-cron decides
 * for each minute of the clock's wall time whether it matches. Each chore runs on one instance at a
 * time: the one that updates the chore's row. A failed chore is logged and runs again at its next
 * time.
 */
import cron, { type ScheduledTask } from 'node-cron';
import { messageOf } from '../../platform/errors.ts';
import type { Logger } from '../../platform/log.ts';
import type { Queryable } from '../../platform/postgres/database.ts';
import type { Clock } from '../../platform/time/clock.ts';
import { Loop } from '../../platform/time/loop.ts';
import type { Chore } from '../subsystem.ts';

interface HousekeepingDeps {
  database: Queryable;
  chores: readonly Chore[];
  clock: Clock;
  log: Logger;
  /** Cron expression; default hourly. */
  schedule?: string;
}

const HOURLY = '23 * * * *';
const MINUTE_MS = 60_000;
const MAX_BATCHES = 1_000;

export class Housekeeping {
  readonly #deps: HousekeepingDeps;
  /** Never started: its own timers would not follow the clock. */
  readonly #schedule: ScheduledTask;
  readonly #loop: Loop;
  /** The number of the last minute that was compared with the schedule. */
  #minute = 0;
  #isStopped = false;

  constructor(deps: HousekeepingDeps) {
    const { clock, schedule = HOURLY } = deps;
    this.#deps = deps;
    this.#schedule = cron.createTask(schedule, () => undefined);
    this.#loop = new Loop({
      ...deps,
      what: 'housekeeping',
      work: () => this.#poll(),
      pauseMs: () => MINUTE_MS - (clock.wallTime() % MINUTE_MS),
      first: 'pause',
    });
  }

  start(): void {
    this.#loop.start();
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    await this.#loop.stop();
    await this.#schedule.destroy();
  }

  /** A minute that passed during a round, or while this process was suspended, is left out. */
  async #poll(): Promise<void> {
    const minute = Math.floor(this.#deps.clock.wallTime() / MINUTE_MS);
    if (minute === this.#minute) return;
    this.#minute = minute;
    if (this.#schedule.match(new Date(minute * MINUTE_MS))) await this.runDue();
  }

  /**
   * Runs each chore that no instance has begun in the last half hour. A beginning far in the future
   * is of a time when the database's clock was wrong.
   */
  async runDue(): Promise<void> {
    for (const chore of this.#deps.chores) {
      if (this.#isStopped) return;
      try {
        if (await this.#isMine(chore)) await this.#do(chore);
      } catch (error) {
        this.#deps.log.warn({ chore: chore.name, reason: messageOf(error) }, 'housekeeping: chore failed');
      }
    }
  }

  async #isMine({ name }: Chore): Promise<boolean> {
    const { rowCount } = await this.#deps.database.query(
      `insert into cnapi_chores as chore (name, begun_at) values ($1::text, cnapi_now())
       on conflict (name) do update set begun_at = cnapi_now()
       where chore.begun_at not between cnapi_now() - interval '30 minutes' and cnapi_now() + interval '30 minutes'`,
      [name],
    );
    return rowCount === 1;
  }

  async #do(chore: Chore): Promise<void> {
    let deleted = 0;
    for (let batches = 0; batches < MAX_BATCHES && !this.#isStopped; batches += 1) {
      const count = await chore.batch();
      deleted += count;
      if (count === 0) break;
    }
    if (deleted > 0) this.#deps.log.info({ chore: chore.name, deleted }, 'housekeeping: chore done');
  }
}
