/**
 * Several instances carry out schedules over one database, on clocks that the seed moves: instances
 * die before and after their statements, clocks go wrong and are set back, nobody looks for hours,
 * jobs end late, schedules are paused. After each round the rows are compared with what
 * docs/push-schedules.md promises.
 */
import type { Test } from 'tap';
import { cronTimes } from '../../../../lib/control/push/schedules/cron-times.ts';
import { CATCH_UP_MS } from '../../../../lib/control/push/schedules/schedule.ts';
import type { ScheduleRequest } from '../../../../lib/control/push/schedules/schedules.ts';
import type { Queryable } from '../../../../lib/platform/postgres/database.ts';
import { SeededRandom } from '../../../sim/seeded-random.ts';
import { request, scheduleZone } from './schedule-zone.ts';

const MINUTE_MS = 60_000;
const START = Date.parse('2030-01-01T00:00:00Z');
const ROUNDS = 40;
const INSTANCES = 3;

type Cut = readonly [from: string | RegExp, to: string];

export interface Defect {
  name: string;
  /** Replaces texts of this function of the database. */
  function?: string;
  cuts?: readonly Cut[];
  /** Replaces texts of statements on their way to the database. */
  ofStatements?: readonly Cut[];
  /** SQL that the database runs before the statement. */
  also?: string;
}

interface Fired {
  schedule: string;
  at: Date;
  job: string;
  state: string | null;
}

/** Instances claim one after the other, each when the claim before is over; then all go on. */
class Lateness {
  readonly #endClaims: () => Promise<unknown>;
  readonly #all = Promise.withResolvers<void>();
  #last: Promise<unknown> = Promise.resolve();
  #left: number;

  constructor(instances: number, endClaims: () => Promise<unknown>) {
    this.#left = instances;
    this.#endClaims = endClaims;
  }

  async claim<Result>(send: () => Promise<Result>): Promise<Result> {
    const claimed = this.#last.then(send);
    this.#last = claimed.then(this.#endClaims, this.#endClaims);
    await this.#last;
    this.#left -= 1;
    if (this.#left === 0) this.#all.resolve();
    await this.#all.promise;
    return claimed;
  }
}

type Zone = Awaited<ReturnType<typeof scheduleZone>>;

/** Returns what was violated first. */
export async function runModel(t: Test, seed: string, defect?: Defect): Promise<string | undefined> {
  const random = new SeededRandom(`schedules ${seed}`);
  const zone = await scheduleZone(t);
  if (defect !== undefined) await addDefect(zone, defect);
  const fate = { statementsLeft: Number.POSITIVE_INFINITY, isSent: false };
  /** All instances are so slow that their claims are over before they do anything. */
  let lateness: Lateness | undefined;
  const mortal = (database: Queryable): Queryable => ({
    ...database,
    async query(text: string, ...rest: never[]) {
      fate.statementsLeft -= 1;
      const sent = changed(text, defect?.ofStatements);
      const isLast = fate.statementsLeft === 0;
      const send = async () => {
        if (isLast && !fate.isSent) throw new Error('the instance died before its statement');
        const result = await database.query(sent, ...rest);
        if (isLast) throw new Error('the instance died after its statement');
        return result as never;
      };
      return lateness !== undefined && text.includes('cnapi_claim_due_push_schedules') ? lateness.claim(send) : send();
    },
  });
  const instances = Array.from({ length: INSTANCES }, () => zone.instance(mortal));
  const [first] = instances;
  const schedules: ScheduleRequest[] = [
    ...(['skip', 'queue', 'allow'] as const).map((overlap) => request({ overlap, cron: '*/10 * * * *' })),
    request({ overlap: 'skip', cron: '7 */2 * * *' }),
    request({ at: '2030-01-01T05:30:00Z' }),
  ];
  for (const schedule of schedules) await first?.create(schedule);

  let now = START;
  /**
   * The latest time at which an instance acted: after `now` if its clock and the database's were
   * ahead.
   */
  let latestOfAll = START;
  const known = new Set<string>();
  for (let round = 0; round < ROUNDS; round += 1) {
    now += random.chance(0.1) ? random.whole(60, 240) * MINUTE_MS : random.whole(1, 12) * MINUTE_MS;
    const isLastRound = round === ROUNDS - 1;
    const isWrong = () => !isLastRound && random.chance(0.15);
    const databaseTime = isWrong() ? now + random.whole(-90, 90) * MINUTE_MS : now;
    await zone.setDatabaseTime(new Date(databaseTime).toISOString());
    const clocks = instances.map(() => (isWrong() ? now + random.whole(-90, 90) * MINUTE_MS : now));
    for (const [place, clock] of clocks.entries()) zone.instances[place]?.setTime(clock);
    if (random.chance(0.4) || isLastRound) await endSomeJobs(zone, isLastRound ? 1 : 0.5);
    fate.isSent = random.chance(0.5);
    fate.statementsLeft = !isLastRound && random.chance(0.3) ? random.whole(1, 8) : Number.POSITIVE_INFINITY;
    const looking = instances.filter(() => isLastRound || random.chance(0.6));
    const waiting = await queuedTimes(zone);
    await zone.rest();
    lateness = random.chance(0.5) ? new Lateness(looking.length, zone.rest) : undefined;
    await Promise.allSettled(looking.map(({ scheduler }) => scheduler.runDue()));
    const latest = Math.min(databaseTime, Math.max(...clocks));
    latestOfAll = Math.max(latestOfAll, latest);
    const fired = await firedJobs(zone);
    const found = violationOf(fired, { schedules, known, latest, waiting });
    if (found !== undefined) return `round ${round}: ${found}`;
    for (const { job } of fired) known.add(job);
  }
  lateness = undefined;
  // Whoever was busy or died, a round without faults has used up all times.
  for (let turn = 0; turn < 3; turn += 1) {
    await zone.endJobs();
    await zone.rest();
    for (const { scheduler } of instances) await scheduler.runDue();
  }
  return unusedTime(zone, schedules, { now, latest: Math.max(now, latestOfAll) });
}

/** Jobs without a time, times out of order, early, late, or while the last job runs. */
function violationOf(
  fired: readonly Fired[],
  {
    schedules,
    known,
    latest,
    waiting,
  }: {
    schedules: readonly ScheduleRequest[];
    known: ReadonlySet<string>;
    latest: number;
    waiting: ReadonlySet<string>;
  },
): string | undefined {
  if (fired.some(({ schedule }) => schedule === '')) return 'there is a job that used up no time';
  if (fired.some(({ state }) => state === null)) return 'a time was used up for a job that does not exist';
  for (const { id, cron, overlap } of schedules) {
    const mine = fired.filter(({ schedule }) => schedule === id);
    const times = mine.map(({ at }) => at.getTime());
    if (new Set(times).size < times.length) return `schedule ${overlap}: a time started two jobs`;
    const running = mine.filter(({ state }) => state !== 'ended').length;
    if (overlap !== 'allow' && running > 1) return `schedule ${overlap}: ${running} of its jobs run`;
    const newest = Math.max(...mine.filter(({ job }) => known.has(job)).map(({ at }) => at.getTime()));
    for (const { job, at } of mine) {
      if (known.has(job)) continue;
      const about = `schedule ${overlap}: the time ${at.toISOString()}`;
      if (at.getTime() > latest) return `${about} came early`;
      if (at.getTime() < newest) return `${about} came after a later one`;
      if (cron !== undefined && cronTimes(cron, 'UTC').next(at.getTime() - 1) !== at.getTime())
        return `${about} is none`;
      const wasWaiting = waiting.has(`${id} ${at.toISOString()}`);
      // The clock of the instance that started it may have been behind.
      if (!wasWaiting && at.getTime() < latest - CATCH_UP_MS - 180 * MINUTE_MS) return `${about} had been missed`;
    }
  }
  return undefined;
}

async function unusedTime(
  { database }: Zone,
  schedules: readonly ScheduleRequest[],
  { now, latest }: { now: number; latest: number },
): Promise<string | undefined> {
  const { rows } = await database.query<{ id: string; next_at: Date | null; queued_at: Date | null }>(
    'select id, next_at, queued_at from cnapi_push_schedules',
  );
  for (const { id, next_at: next, queued_at: queued } of rows) {
    const { cron, overlap } = schedules.find((one) => one.id === id) ?? {};
    const [first, last] = [now, latest].map((time) =>
      cron === undefined ? undefined : cronTimes(cron, 'UTC').next(time),
    );
    const isExpected =
      next === null ? first === undefined : next.getTime() >= (first ?? Infinity) && next.getTime() <= (last ?? 0);
    if (!isExpected) return `schedule ${overlap}: its next time is ${next?.toISOString()}`;
    if (queued !== null) return `schedule ${overlap}: the time ${queued.toISOString()} still waits`;
  }
  return undefined;
}

/** Jobs, and times that were used up for one. */
async function firedJobs({ database }: Zone): Promise<Fired[]> {
  const { rows } = await database.query<Fired>(
    `select coalesce(f.schedule::text, '') as schedule, coalesce(f.at, j.created_at) as at,
         coalesce(f.job, j.id) as job, j.state
       from cnapi_push_jobs j full join cnapi_push_firings f on f.job = j.id`,
  );
  return rows;
}

async function queuedTimes({ database }: Zone): Promise<Set<string>> {
  const { rows } = await database.query<{ id: string; queued_at: Date }>(
    'select id, queued_at from cnapi_push_schedules where queued_at is not null',
  );
  return new Set(rows.map(({ id, queued_at }) => `${id} ${queued_at.toISOString()}`));
}

async function endSomeJobs({ database }: Zone, share: number): Promise<void> {
  await database.query(
    `update cnapi_push_jobs set state = 'ended', outcome = 'complete'
       where state <> 'ended' and hashtext(id::text) % 100 < $1::float8 * 100`,
    [share],
  );
}

async function addDefect({ database }: Zone, defect: Defect): Promise<void> {
  if (defect.also !== undefined) await database.query(defect.also);
  if (defect.function === undefined) return;
  const { rows } = await database.query<{ text: string }>(
    'select pg_get_functiondef(oid) as text from pg_proc where proname = $1::text',
    [defect.function],
  );
  const text = rows[0]?.text ?? '';
  const cut = changed(text, defect.cuts);
  if (cut === text) throw new Error(`${defect.name}: ${defect.function} has no such text`);
  await database.query(cut);
}

function changed(text: string, cuts: readonly Cut[] = []): string {
  return cuts.reduce<string>((given, [from, to]) => given.replace(from, to), text);
}
