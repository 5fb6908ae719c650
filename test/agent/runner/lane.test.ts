import t from 'tap';
import { Lane } from '../../../lib/agent/runner/lane.ts';

t.test('a lane runs a bounded number at once, the rest in order, and forgets those that leave', async (t) => {
  const lane = new Lane(2);
  const ran: number[] = [];
  const finish: (() => void)[] = [];
  const places = [0, 1, 2, 3, 4].map((number) =>
    lane.enter(() => {
      ran.push(number);
      return new Promise((done) => finish.push(done));
    }),
  );
  t.same(ran, [0, 1]);
  places[2]?.leave();
  t.equal(lane.waiting, 2, 'the one that left is not counted');
  for (const done of finish.splice(0)) done();
  await new Promise((done) => setImmediate(done));
  t.same(ran, [0, 1, 3, 4]);
  places[0]?.leave();
  t.equal(lane.waiting, 0);
});
