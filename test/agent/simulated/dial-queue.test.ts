import t from 'tap';
import { DialQueue } from '../../../lib/agent/simulated/dial-queue.ts';
import { type Clock, systemClock } from '../../../lib/platform/time/clock.ts';

/** A clock moved by hand, whose event loop turns on demand. */
function handClock() {
  const hand = { now: 0, turns: [] as (() => void)[] };
  const clock: Clock = { ...systemClock, now: () => hand.now, afterPoll: (turn) => void hand.turns.push(turn) };
  const turn = () => {
    for (const one of hand.turns.splice(0)) one();
  };
  return { hand, clock, turn };
}

t.test('each turn of the event loop dials for a few milliseconds, in order', async (t) => {
  const { hand, clock, turn } = handClock();
  const queue = new DialQueue(clock);
  const dialled: number[] = [];
  for (let number = 0; number < 10; number++) {
    queue.enter(() => {
      dialled.push(number);
      hand.now += 1;
    });
  }
  t.same(dialled, []);
  turn();
  t.same(dialled, [0, 1, 2, 3]);
  turn();
  turn();
  t.same(dialled, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  turn();
  t.equal(hand.turns.length, 0, 'then nothing is scheduled');
});

t.test('an entry that left is not dialled, and one that enters again waits for another turn', async (t) => {
  const { hand, clock, turn } = handClock();
  const queue = new DialQueue(clock);
  let tries = 0;
  const again = () => {
    tries += 1;
    hand.now += 5;
    queue.enter(again);
  };
  queue.enter(() => t.fail('it had left')).leave();
  queue.enter(again);
  turn();
  t.equal(tries, 1);
  turn();
  t.equal(tries, 2);
});
