import t from 'tap';
import { silentLogger } from '../../lib/log.ts';
import type { Queryable } from '../../lib/moray/database.ts';
import { ReportQueue } from '../../lib/servers/report-queue.ts';
import { ManualClock } from '../support/manual-clock.ts';

const report = (disk: number) => ({ vms: {}, memory: {}, disk: { disk_pool_size_bytes: disk } });

/** A queue over a database that knows these servers, and what was written, a list for each statement. */
function queueFor(known: string[]) {
  const clock = new ManualClock();
  const written: string[][] = [];
  const state = { isAway: false };
  const database: Queryable = {
    async query(_text, values = []) {
      const [servers, , , disks] = values as string[][];
      written.push((servers ?? []).map((server, index) => `${server} ${disks?.[index]?.match(/\d+/)?.[0]}`));
      if (state.isAway) throw new Error('away');
      const rows = (servers ?? []).filter((server) => known.includes(server)).map((server_uuid) => ({ server_uuid }));
      return { rows, rowCount: rows.length } as never;
    },
  };
  return { clock, written, state, queue: new ReportQueue({ database, clock, log: silentLogger }) };
}

t.test(
  'the first report is written at once, those that come soon after together, of each server the newest',
  async (t) => {
    const { clock, written, queue } = queueFor(['a', 'b']);
    queue.add('a', report(1));
    await clock.advance(0);
    t.same(written, [['a 1']]);
    queue.add('a', report(2));
    queue.add('b', report(3));
    queue.add('a', report(4));
    await clock.advance(3_900);
    t.equal(written.length, 1, 'not before the gap is over');
    await clock.advance(200);
    t.same(written.slice(1), [['a 4', 'b 3']]);
    await clock.advance(10_000);
    t.equal(written.length, 2, 'once');
    queue.add('b', report(5));
    await clock.advance(0);
    t.same(written.slice(2), [['b 5']], 'at once again');
    await queue.stop();
  },
);

t.test(
  'a report whose server is not there yet is tried again, until there is a newer one or it is too old',
  async (t) => {
    const known = ['a'];
    const { clock, written, queue } = queueFor(known);
    queue.add('a', report(1));
    queue.add('new', report(2));
    queue.add('never', report(3));
    await clock.advance(1_000);
    known.push('new');
    await clock.advance(30_000);
    t.same(written, [['a 1'], ['new 2', 'never 3'], ['never 3'], ['never 3']].slice(0, written.length));
    t.equal(written.flat().filter((one) => one === 'never 3').length, 3);
    t.equal(written.flat().filter((one) => one === 'new 2').length, 1);
    await queue.stop();
  },
);

t.test('with the database away a report is kept for a while', async (t) => {
  const { clock, written, state, queue } = queueFor(['a']);
  state.isAway = true;
  queue.add('a', report(1));
  await clock.advance(0);
  state.isAway = false;
  await clock.advance(5_000);
  t.same(written, [['a 1'], ['a 1']]);
  await clock.advance(30_000);
  t.equal(written.length, 2);
  await queue.stop();
});

t.test('many reports are written a bounded number at a time, and stopping lets go of what waits', async (t) => {
  const servers = Array.from({ length: 1_200 }, (_, index) => `s${index}`);
  const { clock, written, queue } = queueFor(['first', ...servers]);
  queue.add('first', report(0));
  await clock.advance(0);
  for (const server of servers) queue.add(server, report(1));
  await clock.advance(4_100);
  t.same(
    written.map((batch) => batch.length),
    [1, 500, 500, 200],
  );
  queue.add('first', report(2));
  await queue.stop();
  queue.add('first', report(3));
  await clock.advance(10_000);
  t.equal(written.length, 4);
});
