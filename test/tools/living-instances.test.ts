import t from 'tap';
import { silentLogger } from '../../lib/log.ts';
import type { Queryable } from '../../lib/moray/database.ts';
import { systemClock } from '../../lib/ports/clock.ts';
import { LivingInstances } from '../../tools/living-instances.ts';
import { until } from '../support/until.ts';

interface Row {
  run: string;
  port: number;
  beat: number;
  isDraining?: boolean;
}

/** A table of instances whose rows a test changes, and that can be away. */
class Table {
  rows: Row[] = [];
  away = false;
  reads = 0;

  query(): Promise<unknown> {
    this.reads += 1;
    if (this.away) return Promise.reject(new Error('the database is away'));
    const rows = this.rows.map(({ run, port, beat, isDraining = false }) => ({
      run,
      port,
      beat,
      cnapi_uuid: `uuid-${port}`,
      host: '127.0.0.1',
      url: `http://127.0.0.1:${port}`,
      pid: 1,
      version: '1',
      state: 'live',
      is_draining: isDraining,
      agents: 0,
      started_at: new Date(0),
    }));
    return Promise.resolve({ rows, rowCount: rows.length });
  }
}

function observed(t: { teardown(work: () => unknown): void }, table: Table): LivingInstances {
  const living = new LivingInstances({
    database: table as unknown as Queryable,
    clock: systemClock,
    log: silentLogger,
    readMs: 20,
    leaseMs: 200,
  });
  living.start();
  t.teardown(() => living.stop());
  return living;
}

const ports = (living: LivingInstances) => living.instances.map(({ port }) => port);

t.test('a run whose beat stands still is left out, and comes back when it beats', async (t) => {
  const table = new Table();
  const [first, second] = [
    { run: 'a', port: 1, beat: 0 },
    { run: 'b', port: 2, beat: 0 },
  ];
  table.rows = [first, second];
  const heart = systemClock.every(10, () => {
    first.beat += 1;
  });
  t.teardown(() => heart.cancel());
  const living = observed(t, table);
  await until(() => ports(living).join() === '1,2', 'both live');
  await until(() => ports(living).join() === '1', 'the silent one is left out');
  second.beat += 1;
  await until(() => ports(living).join() === '1,2', 'it is back');
  t.pass('left out and taken back');
});

t.test('an instance that drains is left out at once, though it beats', async (t) => {
  const table = new Table();
  const [stays, leaves]: [Row, Row] = [
    { run: 'a', port: 1, beat: 0 },
    { run: 'b', port: 2, beat: 0 },
  ];
  table.rows = [stays, leaves];
  const hearts = systemClock.every(10, () => {
    for (const row of table.rows) row.beat += 1;
  });
  t.teardown(() => hearts.cancel());
  const living = observed(t, table);
  await until(() => ports(living).join() === '1,2', 'both live');
  leaves.isDraining = true;
  await until(() => ports(living).join() === '1', 'the one that drains is left out');
  t.pass('callers are not sent to it any more');
});

t.test('while the database is away the last answer is kept, however long', async (t) => {
  const table = new Table();
  table.rows = [{ run: 'a', port: 1, beat: 0 }];
  const living = observed(t, table);
  await until(() => ports(living).join() === '1', 'it lives');
  table.away = true;
  const reads = table.reads;
  await until(() => table.reads > reads + 20, 'twenty reads have failed');
  t.strictSame(ports(living), [1]);
  table.away = false;
  table.rows = [];
  await until(() => living.instances.length === 0, 'the truth is told again');
});

t.test('of two runs at one address the later counts', async (t) => {
  const table = new Table();
  table.rows = [
    { run: 'earlier', port: 1, beat: 0 },
    { run: 'later', port: 1, beat: 0 },
  ];
  const living = observed(t, table);
  await until(() => living.instances.length > 0, 'it lives');
  t.strictSame(ports(living), [1]);
});
