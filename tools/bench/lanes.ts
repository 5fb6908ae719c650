/** Load for figures that count: a number of operations in flight, and turns with the floor. */
import { systemClock as clock } from '../../lib/platform/time/clock.ts';
import type { PgbenchFloor } from './floor-database.ts';

/** Runs `count` lanes, each taking one turn after the other; returns turns per second. */
export async function runLanes(
  count: number,
  seconds: number,
  take: (lane: number, turn: number) => Promise<unknown>,
): Promise<number> {
  const startedAt = clock.now();
  const until = startedAt + seconds * 1000;
  let turns = 0;
  const run = async (lane: number) => {
    for (let turn = 0; clock.now() < until; turn++, turns++) await take(lane, turn);
  };
  await Promise.all(Array.from({ length: count }, (_, lane) => run(lane)));
  return turns / ((clock.now() - startedAt) / 1000);
}

/**
 * Alternates ours and the floor, so that both run under the same conditions; ours is warmed up
 * first.
 */
export async function takeTurns(
  { rounds, seconds }: { rounds: number; seconds: number },
  own: (seconds: number) => Promise<number>,
  floor: PgbenchFloor,
): Promise<{ rates: number[]; floors: number[] }> {
  const [rates, floors]: [number[], number[]] = [[], []];
  await own(seconds);
  for (let round = 0; round < rounds; round++) {
    rates.push(await own(seconds));
    if (floor.reason === undefined) floors.push(await floor.perSecond(seconds));
  }
  return { rates, floors };
}
