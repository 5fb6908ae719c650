import t from 'tap';
import {
  type Health,
  type HealthEvent,
  isGivenUp,
  stepHealth,
  unprovenHealth,
} from '../../../lib/platform/bus/health.ts';

const tick: HealthEvent = { kind: 'tick', late: false };
const lateTick: HealthEvent = { kind: 'tick', late: true };
const heard = (sequence: number): HealthEvent => ({ kind: 'heard', sequence });
const lost: HealthEvent = { kind: 'lost' };

const rows: { name: string; events: HealthEvent[]; healthy: boolean; misses: number; givenUp?: boolean }[] = [
  { name: 'a bus is not healthy before its first beat', events: [], healthy: false, misses: 0 },
  { name: 'a beat that was only sent does not make it healthy', events: [tick], healthy: false, misses: 0 },
  { name: 'a beat that returns makes it healthy', events: [tick, heard(1)], healthy: true, misses: 0 },
  { name: 'two missed beats leave it healthy', events: [tick, heard(1), tick, tick, tick], healthy: true, misses: 2 },
  {
    name: 'three missed beats make it unhealthy',
    events: [tick, heard(1), tick, tick, tick, tick],
    healthy: false,
    misses: 3,
  },
  {
    name: 'a beat that returns resets the misses',
    events: [tick, heard(1), tick, tick, heard(3), tick],
    healthy: true,
    misses: 0,
  },
  {
    name: 'the latest beat makes it healthy again',
    events: [tick, heard(1), tick, tick, tick, tick, heard(5)],
    healthy: true,
    misses: 0,
  },
  {
    name: 'an older beat does not make it healthy again',
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
  { name: 'a lost connection makes it unhealthy at once', events: [tick, heard(1), lost], healthy: false, misses: 0 },
  {
    name: 'beats in flight on a lost connection are no misses of the next one',
    events: [tick, tick, lost, tick],
    healthy: false,
    misses: 0,
  },
  {
    name: 'after six misses the connection is given up',
    events: Array(7).fill(tick),
    healthy: false,
    misses: 6,
    givenUp: true,
  },
  { name: 'after five misses the connection is kept', events: Array(6).fill(tick), healthy: false, misses: 5 },
];

for (const { name, events, healthy, misses, givenUp = false } of rows) {
  t.test(name, async (t) => {
    const health: Health = events.reduce(stepHealth, unprovenHealth);
    t.match(health, { healthy, misses });
    t.equal(isGivenUp(health), givenUp);
  });
}
