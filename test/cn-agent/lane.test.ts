import t from 'tap';
import { Lane } from '../../lib/cn-agent/lane.ts';

t.test('so many run at once, the rest waits in order, and what leaves before its turn is forgotten', async (t) => {
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
  t.equal(lane.waiting, 2, 'nothing is kept of it');
  for (const done of finish.splice(0)) done();
  await new Promise((done) => setImmediate(done));
  t.same(ran, [0, 1, 3, 4]);
  places[0]?.leave();
  t.equal(lane.waiting, 0);
});
