/** The zone's time, as several instances advance it: never ahead of real time, and at a standstill while none is well. */
import t from 'tap';
import { DeadlineCounter, TICK_MS } from '../../../lib/control/tasks/deadline-counter.ts';

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

t.test('what one instance proposes', async (t) => {
  const rows: [name: string, polls: (number | 'fails')[], advanced: number][] = [
    ['nothing when it sees the counter for the first time', [0], 0],
    ['the ticks that passed since', [0, 5_000], 5],
    ['no tick that has not passed as a whole', [0, 999], 0],
    ['the rest of a tick with the next ones', [0, 1_600, 3_200], 3],
    ['nothing of a time in which it did not ask for long', [0, 5_000, 20_001], 5],
    ['and goes on from then', [0, 5_000, 20_001, 25_001], 10],
    ['nothing of a time in which the database was away', [0, 5_000, 'fails', 12_000, 14_000], 7],
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

t.test('several instances advance it together no faster than one, and go on when one of them leaves', async (t) => {
  const counter = new Counter();
  const instances = Array.from({ length: 5 }, () => new DeadlineCounter(MAX_GAP_MS));
  const at = (index: number, round: number) => round * 5_000 + index * 700;
  for (let round = 0; round <= 100; round += 1)
    for (const [index, ticks] of instances.entries()) {
      poll(ticks, counter, at(index, round));
      t.ok((counter.value - 1) * TICK_MS <= at(index, round), `no faster, round ${round}`);
    }
  t.ok(counter.value > 400, 'and not much slower');
  const before = counter.value;
  instances.shift();
  for (let round = 101; round <= 110; round += 1)
    for (const [index, ticks] of instances.entries()) poll(ticks, counter, at(index + 1, round));
  t.ok(counter.value - before >= 40);
});

t.test('an instance that starts later neither adds what passed before it came, nor takes it away', async (t) => {
  const [counter, first, second] = [new Counter(), new DeadlineCounter(MAX_GAP_MS), new DeadlineCounter(MAX_GAP_MS)];
  poll(first, counter, 0);
  poll(first, counter, 10_000);
  poll(second, counter, 1_000_000);
  poll(first, counter, 14_000);
  poll(second, counter, 1_001_000);
  t.equal(counter.value - 1, 14, 'its clock shows something else');
});

t.test('answers that come late make it slower, never faster', async (t) => {
  const [counter, ticks] = [new Counter(), new DeadlineCounter(MAX_GAP_MS)];
  for (let now = 0; now < 60_000; now += 6_000) {
    poll(ticks, counter, now, now + 3_000);
    t.ok((counter.value - 1) * TICK_MS <= now);
  }
});
