import t from 'tap';
import { ReportQueue } from '../../../lib/control/servers/report-queue.ts';
import type { ServerReport } from '../../../lib/control/servers/server.ts';
import { DatabaseBusyError, DatabaseUnavailableError } from '../../../lib/platform/errors.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import type { Queryable } from '../../../lib/platform/postgres/database.ts';
import { ManualClock } from '../../support/manual-clock.ts';

const report = (disk: number) => ({ vms: {}, memory: {}, disk: { disk_pool_size_bytes: disk } });
const of = (serverUuid: string, one: ServerReport) => ({ serverUuid, epoch: 1, report: one });
const memory = (bytes: number) => ({ vms: {}, memory: { memory_total_bytes: bytes }, disk: {} });

/**
 * A queue over a database that knows these servers, and what was written, one list per statement.
 */
function queueFor(known: string[]) {
  const clock = new ManualClock();
  const written: string[][] = [];
  const state = { isAway: false, locked: '', skipped: '' };
  const database: Queryable = {
    async query(_text, values = []) {
      const [servers, , , , disks] = values as string[][];
      written.push((servers ?? []).map((server, index) => `${server} ${disks?.[index]?.match(/\d+/)?.[0]}`));
      if (state.isAway) throw new DatabaseUnavailableError(new Error('away'));
      if (servers?.includes(state.locked)) throw new DatabaseBusyError('locked');
      const rows = (servers ?? [])
        .filter((server) => known.includes(server))
        .map((server_uuid) => ({ server_uuid, outcome: server_uuid === state.skipped ? 'locked' : 'stored' }));
      return { rows, rowCount: rows.length } as never;
    },
  };
  return { clock, written, state, queue: new ReportQueue({ database, clock, log: silentLogger }) };
}

t.test('the first report is written at once, later ones together, the newest of each server', async (t) => {
  const { clock, written, queue } = queueFor(['a', 'b']);
  queue.add(of('a', report(1)), 100);
  await clock.advance(0);
  t.same(written, [['a 1']]);
  queue.add(of('a', report(2)), 100);
  queue.add(of('b', report(3)), 100);
  queue.add(of('a', report(4)), 100);
  await clock.advance(3_900);
  t.equal(written.length, 1, 'not before the interval has passed');
  await clock.advance(200);
  t.same(written.slice(1), [['a 4', 'b 3']]);
  await clock.advance(10_000);
  t.equal(written.length, 2, 'only once');
  queue.add(of('b', report(5)), 100);
  await clock.advance(0);
  t.same(written.slice(2), [['b 5']], 'at once again');
  await queue.stop();
});

t.test('a report of an unknown server is retried until a newer one arrives or it is too old', async (t) => {
  const known = ['a'];
  const { clock, written, queue } = queueFor(known);
  queue.add(of('a', report(1)), 100);
  queue.add(of('new', report(2)), 100);
  queue.add(of('never', report(3)), 100);
  await clock.advance(1_000);
  known.push('new');
  await clock.advance(30_000);
  t.same(written, [['a 1'], ['new 2', 'never 3'], ['never 3'], ['never 3']].slice(0, written.length));
  t.equal(written.flat().filter((one) => one === 'never 3').length, 3);
  t.equal(written.flat().filter((one) => one === 'new 2').length, 1);
  await queue.stop();
});

t.test('while the database is unreachable, a report is kept for a while', async (t) => {
  const { clock, written, state, queue } = queueFor(['a']);
  state.isAway = true;
  queue.add(of('a', report(1)), 100);
  await clock.advance(0);
  state.isAway = false;
  await clock.advance(5_000);
  t.same(written, [['a 1'], ['a 1']]);
  await clock.advance(30_000);
  t.equal(written.length, 2);
  await queue.stop();
});

t.test('reports are written in batches of bounded size, and stop drops those that wait', async (t) => {
  const servers = Array.from({ length: 1_200 }, (_, index) => `s${index}`);
  const { clock, written, queue } = queueFor(['first', ...servers]);
  queue.add(of('first', report(0)), 100);
  await clock.advance(0);
  for (const server of servers) queue.add(of(server, report(1)), 100);
  await clock.advance(4_100);
  t.same(
    written.map((batch) => batch.length),
    [1, 500, 500, 200],
  );
  queue.add(of('first', report(2)), 100);
  await queue.stop();
  queue.add(of('first', report(3)), 100);
  await clock.advance(10_000);
  t.equal(written.length, 4);
});

t.test('figures that a newer report omits are taken from the previous one, written or not', async (t) => {
  const written: string[] = [];
  const state = { isAway: false };
  const clock = new ManualClock();
  const database: Queryable = {
    async query(_text, values = []) {
      const [servers, , , memories, disks] = values as string[][];
      if (state.isAway) throw new DatabaseUnavailableError(new Error('away'));
      written.push(`${memories?.[0]} ${disks?.[0]}`);
      const rows = (servers ?? []).map((server_uuid) => ({ server_uuid, outcome: 'stored' }));
      return { rows, rowCount: rows.length } as never;
    },
  };
  const queue = new ReportQueue({ database, clock, log: silentLogger });
  queue.add(of('a', report(1)), 100);
  await clock.advance(0);
  queue.add(of('a', report(2)), 100);
  queue.add(of('a', memory(7)), 100);
  await clock.advance(4_100);
  t.equal(written[1], '{"memory_total_bytes":7} {"disk_pool_size_bytes":2}');
  await clock.advance(10_000);
  state.isAway = true;
  queue.add(of('a', report(3)), 100);
  await clock.advance(0);
  queue.add(of('a', memory(8)), 100);
  state.isAway = false;
  await clock.advance(4_100);
  t.equal(written[2], '{"memory_total_bytes":8} {"disk_pool_size_bytes":3}');
  await queue.stop();
});

t.test('the queue and each statement are bounded in bytes; reports above that are dropped', async (t) => {
  const mib = 1024 * 1024;
  const servers = Array.from({ length: 20 }, (_, index) => `s${index}`);
  const { clock, written, state, queue } = queueFor(servers);
  state.isAway = true;
  queue.add(of('first', report(0)), 100);
  await clock.advance(100);
  for (const server of servers) queue.add(of(server, report(1)), 4 * mib);
  t.equal(queue.dropped, 5, '64 MiB have room for 15 besides the first');
  queue.add(of('s0', report(2)), 4 * mib);
  t.equal(queue.dropped, 5, 'a newer report replaces the waiting one');
  state.isAway = false;
  await clock.advance(5_000);
  t.equal(
    written
      .slice(1)
      .flat()
      .filter((one) => one.startsWith('s')).length,
    15,
  );
  t.ok(
    written.slice(1).every((one) => one.length <= 2 || one.some((each) => each.startsWith('first'))),
    'two of 4 MiB at a time',
  );
  await queue.stop();
});

t.test('a report whose row is locked delays no other', async (t) => {
  const { clock, written, state, queue } = queueFor(['a', 'b', 'c', 'd']);
  state.locked = 'b';
  queue.add(of('a', report(1)), 100);
  for (const server of ['b', 'c', 'd']) queue.add(of(server, report(2)), 100);
  await clock.advance(4_100);
  t.same(written.slice(0, 5), [['a 1'], ['b 2', 'c 2', 'd 2'], ['b 2'], ['c 2'], ['d 2']]);
  await clock.advance(60_000);
  state.locked = '';
  await clock.advance(1_100);
  t.same(written.at(-1), ['b 2'], 'it is retried as long as its row is locked');
  await queue.stop();
});

t.test('a report that a statement skipped is tried again until it is stored', async (t) => {
  const { clock, written, state, queue } = queueFor(['a']);
  state.skipped = 'a';
  queue.add(of('a', report(1)), 100);
  for (let second = 0; second < 3; second++) await clock.advance(1_000);
  t.ok(written.length > 1);
  state.skipped = '';
  for (let second = 0; second < 30; second++) await clock.advance(1_000);
  const tries = written.length;
  await clock.advance(10_000);
  t.equal(written.length, tries);
  await queue.stop();
});

t.test('changes of VMs are written soon, also right after another write', async (t) => {
  const { clock, written, queue } = queueFor(['a', 'b']);
  const withVm = (disk: number, state: string) => ({ ...report(disk), vms: { one: { state } } });
  queue.add(of('a', withVm(1, 'running')), 100);
  await clock.advance(0);
  queue.add(of('a', withVm(2, 'stopped')), 100);
  queue.add(of('b', report(3)), 100);
  await clock.advance(60);
  t.same(written, [['a 1'], ['a 2', 'b 3']]);
  queue.add(of('a', withVm(4, 'stopped')), 100);
  await clock.advance(1_000);
  t.equal(written.length, 2, 'VMs that have not changed can wait');
  await queue.stop();
});

/** A report of so many VMs, which are all in this state. */
const allIn = (state: number, vms: number): ServerReport => ({
  vms: Object.fromEntries(Array.from({ length: vms }, (_, n) => [`vm-${n}`, { state: String(state) }])),
  memory: {},
  disk: { disk_pool_size_bytes: state },
});

t.test('a server may change so many VMs, however many reports they are in', async (t) => {
  const { clock, written, queue } = queueFor(['busy', 'calm']);
  for (let n = 1; n <= 200; n++) {
    queue.add(of('busy', allIn(n, 1_000)), 100);
    await clock.advance(100);
  }
  t.same(written.flat(), ['busy 1', 'busy 2'], 'a thousand changes, and the report that exceeds them');
  t.equal(queue.delayed, 198);
  queue.add(of('calm', allIn(1, 1)), 100);
  await clock.advance(50);
  t.match(written.at(-1)?.join(), /calm/, 'a change of another server is stored at once');
  queue.add(of('busy', allIn(2, 1_000)), 100);
  await clock.advance(4_000);
  t.same(written.at(-1), ['busy 2'], 'a report without changes is stored');
  await clock.advance(400_000);
  queue.add(of('busy', allIn(201, 1_000)), 100);
  await clock.advance(0);
  t.same(written.at(-1), ['busy 201'], 'the newest state is stored when the rate has made up for the changes');
  await queue.stop();
});

t.test('the restart of a server with 200 VMs is stored as it happens', async (t) => {
  const { clock, written, queue } = queueFor(['a']);
  for (let n = 1; n <= 5; n++) {
    queue.add(of('a', allIn(n, 200)), 100);
    await clock.advance(50);
  }
  t.same(written, [['a 1'], ['a 2'], ['a 3'], ['a 4'], ['a 5']]);
  t.equal(queue.delayed, 0);
  await queue.stop();
});

t.test('VMs that change one by one for long are stored five times per second', async (t) => {
  const { clock, written, queue } = queueFor(['a']);
  const { vms, ...figures } = allIn(0, 1_000);
  queue.add(of('a', { vms, ...figures }), 100);
  for (let n = 1; n <= 200; n++) {
    await clock.advance(100);
    queue.add(of('a', { vms: { ...vms, 'vm-0': { state: String(n) } }, ...figures }), 100);
  }
  await clock.advance(50);
  t.ok(written.length >= 90 && written.length <= 110, `${written.length} of 200 in 20 s`);
  await queue.stop();
});

t.test('a report with too many VMs is refused and counted, and the next one is stored', async (t) => {
  const { clock, written, queue } = queueFor(['a']);
  const vms = Object.fromEntries(Array.from({ length: 1_001 }, (_, n) => [`vm-${n}`, {}]));
  queue.addStatus({ serverUuid: 'a', epoch: 1 }, { vms }, 100);
  queue.addStatus({ serverUuid: 'a', epoch: 1 }, { vms: {}, diskinfo: { pool_size_bytes: 1 } }, 100);
  await clock.advance(0);
  t.same([queue.refused, written], [1, [['a 1']]]);
  await queue.stop();
});

t.test('a report is stored without its VMs that have no uuid, and counted', async (t) => {
  const { clock, written, queue } = queueFor(['a']);
  queue.addStatus({ serverUuid: 'a', epoch: 1 }, { vms: { one: {} }, diskinfo: { pool_size_bytes: 1 } }, 100);
  await clock.advance(0);
  t.same([queue.refused, written], [1, [['a 1']]]);
  await queue.stop();
});
