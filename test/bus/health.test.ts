import t from 'tap';
import { type Health, type HealthEvent, isGivenUp, stepHealth, unprovenHealth } from '../../lib/bus/health.ts';

const tick: HealthEvent = { kind: 'tick', late: false };
const lateTick: HealthEvent = { kind: 'tick', late: true };
const heard = (sequence: number): HealthEvent => ({ kind: 'heard', sequence });
const lost: HealthEvent = { kind: 'lost' };

const rows: { name: string; events: HealthEvent[]; healthy: boolean; misses: number; givenUp?: boolean }[] = [
  { name: 'nothing is proven before the first beat', events: [], healthy: false, misses: 0 },
  { name: 'a beat that was sent proves nothing', events: [tick], healthy: false, misses: 0 },
  { name: 'a beat that came back does', events: [tick, heard(1)], healthy: true, misses: 0 },
  { name: 'two misses are borne', events: [tick, heard(1), tick, tick, tick], healthy: true, misses: 2 },
  { name: 'three are not', events: [tick, heard(1), tick, tick, tick, tick], healthy: false, misses: 3 },
  {
    name: 'a beat in between starts anew',
    events: [tick, heard(1), tick, tick, heard(3), tick],
    healthy: true,
    misses: 0,
  },
  {
    name: 'the latest beat heals',
    events: [tick, heard(1), tick, tick, tick, tick, heard(5)],
    healthy: true,
    misses: 0,
  },
  {
    name: 'an old beat does not',
    events: [tick, heard(1), tick, tick, tick, tick, heard(4)],
    healthy: false,
    misses: 3,
  },
  {
    name: 'late ticks count no miss',
    events: [tick, heard(1), tick, lateTick, lateTick, lateTick],
    healthy: true,
    misses: 0,
  },
  { name: 'a lost connection counts at once', events: [tick, heard(1), lost], healthy: false, misses: 0 },
  {
    name: 'its beats in flight are no misses of the next',
    events: [tick, tick, lost, tick],
    healthy: false,
    misses: 0,
  },
  { name: 'six misses give the connection up', events: Array(7).fill(tick), healthy: false, misses: 6, givenUp: true },
  { name: 'five do not', events: Array(6).fill(tick), healthy: false, misses: 5 },
];

for (const { name, events, healthy, misses, givenUp = false } of rows) {
  t.test(name, async (t) => {
    const health: Health = events.reduce(stepHealth, unprovenHealth);
    t.match(health, { healthy, misses });
    t.equal(isGivenUp(health), givenUp);
  });
}
