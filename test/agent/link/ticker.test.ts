import t from 'tap';
import { Ticker } from '../../../lib/agent/link/ticker.ts';
import { type Clock, systemClock } from '../../../lib/platform/time/clock.ts';

/** A clock moved by hand: one periodic timer, and polls that happen on demand. */
function handClock() {
  const hand = { now: 0, tick: () => {}, timers: 0, polls: [] as (() => void)[] };
  const clock: Clock = {
    ...systemClock,
    now: () => hand.now,
    every: (_ms, callback) => {
      hand.tick = callback;
      hand.timers += 1;
      return { cancel: () => void hand.timers-- };
    },
    afterPoll: (callback) => void hand.polls.push(callback),
  };
  const advance = (ms: number) => {
    hand.now += ms;
    hand.tick();
    for (const poll of hand.polls.splice(0)) poll();
  };
  return { hand, clock, advance };
}

const member = () => {
  const ticks: number[] = [];
  return { ticks, tick: (_now: number, healthyMs: number) => void ticks.push(healthyMs) };
};

t.test('a late tick counts no healthy time', async (t) => {
  const { clock, advance } = handClock();
  const ticker = new Ticker({ clock, periodMs: 100 });
  const one = member();
  ticker.add(one);
  for (const ms of [100, 100, 150, 20_000, 100]) advance(ms);
  t.same(one.ticks, [100, 100, 100, 0, 100]);
});

t.test('members are ticked only after the event loop has read what had arrived', async (t) => {
  const { hand, clock } = handClock();
  const ticker = new Ticker({ clock, periodMs: 100 });
  const one = member();
  ticker.add(one);
  hand.tick();
  t.equal(one.ticks.length, 0);
  hand.polls.forEach((poll) => void poll());
  t.equal(one.ticks.length, 1);
});

t.test('members are spread over the slots, and each is ticked once a period', async (t) => {
  const { clock, advance } = handClock();
  const ticker = new Ticker({ clock, periodMs: 100, slots: 4 });
  const members = Array.from({ length: 8 }, member);
  members.forEach((one) => void ticker.add(one));
  advance(25);
  t.equal(members.filter(({ ticks }) => ticks.length === 1).length, 2);
  for (let n = 0; n < 7; n++) advance(25);
  t.ok(members.every(({ ticks }) => ticks.length === 2));
});

t.test('after a stall every slot is ticked immediately, then again in its order', async (t) => {
  const { clock, advance } = handClock();
  const ticker = new Ticker({ clock, periodMs: 100, slots: 4 });
  const members = Array.from({ length: 4 }, member);
  members.forEach((one) => void ticker.add(one));
  const ticked = () => members.reduce((sum, { ticks }) => sum + ticks.length, 0);
  for (let n = 0; n < 8; n++) advance(25);
  const before = ticked();
  advance(1000);
  t.equal(ticked(), before + 4);
  t.ok(
    members.every(({ ticks }) => ticks.at(-1) === 0),
    'the late tick counts no time',
  );
  advance(25);
  t.equal(ticked(), before + 5);
});

t.test('the timer runs only while there are members', async (t) => {
  const { hand, clock } = handClock();
  const ticker = new Ticker({ clock });
  const [a, b] = [member(), member()];
  ticker.add(a);
  ticker.add(b);
  t.equal(hand.timers, 1);
  ticker.remove(a);
  t.equal(hand.timers, 1);
  ticker.remove(b);
  t.equal(hand.timers, 0);
});
