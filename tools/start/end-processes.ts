/**
 * Ends processes in order: agents before instances, instances before the services they use. Used by
 * the supervisor when it stops, by the watchdog when the supervisor is gone, and at the start for
 * what a crash of both left behind. Each rank is sent its own signal and given its time. Then it is
 * killed, with its process group and all its descendants (Postgres's backends have groups of their
 * own). All ranks together take less than 10 s.
 */
import { readFileSync } from 'node:fs';
import type { Clock } from '../../lib/platform/time/clock.ts';
import { type DescribedProcess, isAlive } from '../setup/processes.mjs';

export interface Ending extends DescribedProcess {
  name: string;
  signal: NodeJS.Signals;
  rank: Rank;
}

/** The order of stopping, and the time of each rank before it is killed. */
const graceMs = { agents: 1500, instances: 2500, names: 500, redis: 1000, postgres: 3000 } as const;

export type Rank = keyof typeof graceMs;

const ranks = Object.keys(graceMs) as Rank[];
const pollMs = 20;

/**
 * Ends all of them; resolves when none is left. Does nothing for processes that are already gone.
 */
export async function endInOrder(endings: readonly Ending[], clock: Clock): Promise<void> {
  for (const rank of ranks)
    await endRank(
      endings.filter((ending) => ending.rank === rank),
      graceMs[rank],
      clock,
    );
}

async function endRank(endings: readonly Ending[], limitMs: number, clock: Clock): Promise<void> {
  const alive = endings.filter(isAlive);
  for (const { pid, signal } of alive) trySignal(pid, signal);
  await untilGone(alive, limitMs, clock);
  for (const { pid } of alive.filter(isAlive)) {
    for (const target of [-pid, ...descendants(pid)]) trySignal(target, 'SIGKILL');
  }
  await untilGone(alive, 1000, clock);
}

async function untilGone(endings: readonly Ending[], limitMs: number, clock: Clock): Promise<void> {
  const deadline = clock.now() + limitMs;
  while (endings.some(isAlive) && clock.now() < deadline) await clock.sleep(pollMs);
}

/** Returns all descendants of `pid`; none if the system does not report them. */
function descendants(pid: number): number[] {
  try {
    const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ').filter(Boolean);
    return children.map(Number).flatMap((child) => [child, ...descendants(child)]);
  } catch {
    return [];
  }
}

/** Fails if the target is already gone, which is harmless. */
function trySignal(target: number, signal: NodeJS.Signals): void {
  try {
    process.kill(target, signal);
  } catch {
    // ESRCH
  }
}
