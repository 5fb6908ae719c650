/**
 * One lock and its contenders: the same loops for ours and for a peer's. All contenders run in this
 * process, so it knows exactly which one holds the lock, and stops when two do.
 */
import { systemRandom } from '../../lib/platform/random.ts';
import { systemClock as clock } from '../../lib/platform/time/clock.ts';
import { runLanes } from '../bench/lanes.ts';

/** Releases the lock; resolves when that is confirmed. */
export type Release = () => Promise<unknown>;

export interface Lock {
  /** Resolves when the lock is held. */
  acquire(contender: number, turn: number): Promise<Release>;
}

export interface Contention {
  /** How often per second the lock went to another contender than before. */
  perSecond: number;
  /** Percentage of acquisitions by another contender than before. */
  changedPercent: number;
  /** How long each acquisition waited, in ms. */
  waits: number[];
}

/** Plan for the programs of peers. */
export interface LockPlan {
  databaseUrl: string;
  redisUrl: string | undefined;
  contenders: number;
  /** An absent value means the package's default. */
  retry: { retryDelay?: number; retryJitter?: number };
}

/**
 * Long enough for the next contender to be waiting; random, so that a lock that polls is released
 * at any point between two polls.
 */
const HOLD_MS = { atLeast: 20, atMost: 320 };

/**
 * Returns how many ms after the start of each release the next contender has the lock. Each holds
 * it for a random time.
 * @throws when two hold it concurrently
 */
export async function handOver(unguarded: Lock, { seconds }: { seconds: number }): Promise<number[]> {
  const lock = guarded(unguarded);
  const times: number[] = [];
  let release = await lock.acquire(0, 0);
  for (const until = clock.now() + seconds * 1000, turn = { of: 1 }; clock.now() < until; turn.of++) {
    const next = lock.acquire(turn.of % 2, turn.of).then((released) => ({ released, at: clock.now() }));
    // It may reject before anything awaits it.
    next.catch(() => undefined);
    await clock.sleep(HOLD_MS.atLeast + systemRandom.fraction() * (HOLD_MS.atMost - HOLD_MS.atLeast));
    const startedAt = clock.now();
    const [{ released, at }] = await Promise.all([next, release()]);
    times.push(at - startedAt);
    release = released;
  }
  await release();
  return times;
}

/**
 * All contenders request the lock continuously and release it immediately. Turns that have begun
 * are completed after the time is over.
 * @throws when two hold it concurrently
 */
export async function contend(
  unguarded: Lock,
  { contenders, seconds }: { contenders: number; seconds: number },
): Promise<Contention> {
  const lock = guarded(unguarded);
  const waits: number[] = [];
  let [holder, changes] = [-1, 0];
  const perSecond = await runLanes(contenders, seconds, async (contender, turn) => {
    const askedAt = clock.now();
    const release = await lock.acquire(contender, turn);
    waits.push(clock.now() - askedAt);
    if (holder !== contender) changes += 1;
    holder = contender;
    await release();
  });
  const share = changes / waits.length;
  return { perSecond: perSecond * share, changedPercent: 100 * share, waits };
}

/** @throws when a contender is given the lock before its holder has begun to release it */
export function guarded(lock: Lock): Lock {
  let holders = 0;
  return {
    async acquire(contender, turn) {
      const release = await lock.acquire(contender, turn);
      holders += 1;
      if (holders > 1) throw new Error(`${holders} hold the lock at the same time`);
      return () => {
        holders -= 1;
        return release();
      };
    },
  };
}
