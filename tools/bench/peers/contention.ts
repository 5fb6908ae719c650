/**
 * One lock and those who want it: the same loops for ours and for a peer's. All contenders live in the process that runs this,
 * so it knows exactly who holds the lock, and stops when two do.
 */
import { systemClock as clock } from '../../../lib/ports/clock.ts';
import { systemRandom } from '../../../lib/ports/random.ts';
import { runLanes } from '../lanes.ts';

/** Gives the lock back; resolves when that is confirmed. */
export type Release = () => Promise<unknown>;

export interface Lock {
  /** Resolves when the lock is held. */
  acquire(contender: number, turn: number): Promise<Release>;
}

export interface Contention {
  /** How often a second the lock came to another contender than the one that had it before. */
  perSecond: number;
  /** Of all times it was given, those to another contender than the one that had it before. */
  changedPercent: number;
  /** How long each waited for the lock, in ms. */
  waits: number[];
}

/** For the programs of peers. */
export interface LockPlan {
  databaseUrl: string;
  redisUrl: string | undefined;
  contenders: number;
  /** What is not given is the package's default. */
  retry: { retryDelay?: number; retryJitter?: number };
}

/** So that the next one waits already, and what looks from time to time is met at any point between two looks. */
const HOLD_MS = { atLeast: 20, atMost: 320 };

/** How long after the holder began to give it back the next one has it, in ms; held for a while each time. @throws on overlap */
export async function handOver(unguarded: Lock, { seconds }: { seconds: number }): Promise<number[]> {
  const lock = guarded(unguarded);
  const times: number[] = [];
  let release = await lock.acquire(0, 0);
  for (const until = clock.now() + seconds * 1000, turn = { of: 1 }; clock.now() < until; turn.of++) {
    const next = lock.acquire(turn.of % 2, turn.of).then((released) => ({ released, at: clock.now() }));
    // It may fail while nobody awaits it yet.
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

/** All want it all the time, and give it back at once. What a turn had begun is waited for after its time. @throws on overlap */
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

/** @throws when somebody is given the lock before its holder has begun to give it back */
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
