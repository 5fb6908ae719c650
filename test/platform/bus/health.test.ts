import t from 'tap';
import { type HealthEvent, stepHealth, unprovenHealth } from '../../../lib/platform/bus/health.ts';

const tick: HealthEvent = { type: 'tick', late: false };
const lateTick: HealthEvent = { type: 'tick', late: true };
const received = (sequence: number): HealthEvent => ({ type: 'received', sequence });
const lost: HealthEvent = { type: 'lost' };

const rows: { name: string; events: HealthEvent[]; healthy: boolean; misses: number; givenUp?: boolean }[] = [
  { name: 'a bus is not healthy before its first beat', events: [], healthy: false, misses: 0 },
  { name: 'a beat that was only sent does not make it healthy', events: [tick], healthy: false, misses: 0 },
  { name: 'a beat that returns makes it healthy', events: [tick, received(1)], healthy: true, misses: 0 },
  {
    name: 'two missed beats leave it healthy',
    events: [tick, received(1), tick, tick, tick],
    healthy: true,
    misses: 2,
  },
  {
    name: 'three missed beats make it unhealthy',
    events: [tick, received(1), tick, tick, tick, tick],
    healthy: false,
    misses: 3,
  },
  {
    name: 'a beat that returns resets the misses',
    events: [tick, received(1), tick, tick, received(3), tick],
    healthy: true,
    misses: 0,
  },
  {
    name: 'the latest beat makes it healthy again',
    events: [tick, received(1), tick, tick, tick, tick, received(5)],
    healthy: true,
    misses: 0,
  },
  {
    name: 'an older beat does not make it healthy again',
    events: [tick, received(1), tick, tick, tick, tick, received(4)],
    healthy: false,
    misses: 3,
  },
  {
    name: 'late ticks count no miss',
    events: [tick, received(1), tick, lateTick, lateTick, lateTick],
    healthy: true,
    misses: 0,
  },
  {
    name: 'a lost connection makes it unhealthy at once',
    events: [tick, received(1), lost],
    healthy: false,
    misses: 0,
  },
  {
    name: 'beats in flight on a lost connection do not count as misses of the next one',
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
    const none: ReturnType<typeof stepHealth> = { state: unprovenHealth, effects: [] };
    const { state, effects } = events.reduce(({ state }, event) => stepHealth(state, event), none);
    t.match(state, { healthy, misses });
    t.same(effects, givenUp ? [{ do: 'give-up' }] : []);
  });
}
