/**
 * The zone's time, as several instances advance it: never ahead of real time, and stopped while no
 * instance is healthy.
 */
import t from 'tap';
import { DeadlineCounter, TICK_MS } from '../../../../lib/control/tasks/deadlines/deadline-counter.ts';

const MAX_GAP_MS = 15_000;

/** The counter as the database keeps it. */
class Counter {
  value = 1;

  advance(seen: number | null, by: number): number {
    if (by > 0 && seen === this.value) this.value += by;
    return this.value;
  }
}

const poll = (ticks: DeadlineCounter, counter: Counter, now: number, answeredAt = now): void => {
  const proposal = ticks.propose(now);
  ticks.answered(proposal, counter.advance(proposal.seen, proposal.by), answeredAt);
};

t.test('an instance proposes the ticks that passed while it could poll', async (t) => {
  const rows: [name: string, polls: (number | 'fails')[], advanced: number][] = [
    ['nothing when it reads the counter for the first time', [0], 0],
    ['the ticks that passed since', [0, 5_000], 5],
    ['no tick that has not fully passed', [0, 999], 0],
    ['the rest of a tick is added to the next ones', [0, 1_600, 3_200], 3],
    ['nothing for a long time without a poll', [0, 5_000, 20_001], 5],
    ['the ticks after such a time', [0, 5_000, 20_001, 25_001], 10],
    ['nothing for a time in which the database was away', [0, 5_000, 'fails', 12_000, 14_000], 7],
  ];
  for (const [name, polls, advanced] of rows) {
    const [ticks, counter] = [new DeadlineCounter(MAX_GAP_MS), new Counter()];
    for (const at of polls) {
      if (at === 'fails') ticks.forget();
      else poll(ticks, counter, at);
    }
    t.equal(counter.value - 1, advanced, name);
  }
});

t.test('several instances advance the counter no faster than one, and go on when one leaves', async (t) => {
  const counter = new Counter();
  const instances = Array.from({ length: 5 }, () => new DeadlineCounter(MAX_GAP_MS));
  const at = (index: number, round: number) => round * 5_000 + index * 700;
  for (let round = 0; round <= 100; round += 1)
    for (const [index, ticks] of instances.entries()) {
      poll(ticks, counter, at(index, round));
      t.ok((counter.value - 1) * TICK_MS <= at(index, round), `no faster than real time, round ${round}`);
    }
  t.ok(counter.value > 400, 'not much slower');
  const before = counter.value;
  instances.shift();
  for (let round = 101; round <= 110; round += 1)
    for (const [index, ticks] of instances.entries()) poll(ticks, counter, at(index + 1, round));
  t.ok(counter.value - before >= 40);
});

t.test('an instance that starts later neither adds nor removes the time before its start', async (t) => {
  const [counter, first, second] = [new Counter(), new DeadlineCounter(MAX_GAP_MS), new DeadlineCounter(MAX_GAP_MS)];
  poll(first, counter, 0);
  poll(first, counter, 10_000);
  poll(second, counter, 1_000_000);
  poll(first, counter, 14_000);
  poll(second, counter, 1_001_000);
  t.equal(counter.value - 1, 14, 'its clock shows a different time');
});

t.test('late answers make the counter slower, never faster', async (t) => {
  const [counter, ticks] = [new Counter(), new DeadlineCounter(MAX_GAP_MS)];
  for (let now = 0; now < 60_000; now += 6_000) {
    poll(ticks, counter, now, now + 3_000);
    t.ok((counter.value - 1) * TICK_MS <= now);
  }
});
