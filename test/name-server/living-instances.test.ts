import t from 'tap';
import { LivingInstances } from '../../lib/name-server/living-instances.ts';
import { silentLogger } from '../../lib/platform/log.ts';
import type { Queryable } from '../../lib/platform/postgres/database.ts';
import { systemClock } from '../../lib/platform/time/clock.ts';
import { until } from '../support/until.ts';

interface Row {
  run: string;
  port: number;
  beat: number;
  isDraining?: boolean;
}

/** A table of instances whose rows a test changes and whose reads can be made to fail. */
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

t.test('a run whose beat stands still is left out, and returns when it beats again', async (t) => {
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
  await until(() => ports(living).join() === '1,2', 'both to be listed');
  await until(() => ports(living).join() === '1', 'the silent one to be left out');
  second.beat += 1;
  await until(() => ports(living).join() === '1,2', 'the silent one to return');
  t.pass('left out, then listed again');
});

t.test('a draining instance is left out at once although it beats', async (t) => {
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
  await until(() => ports(living).join() === '1,2', 'both to be listed');
  leaves.isDraining = true;
  await until(() => ports(living).join() === '1', 'the draining one to be left out');
  t.pass('no callers are sent to it');
});

t.test('while the database is unreachable, the last result is kept', async (t) => {
  const table = new Table();
  table.rows = [{ run: 'a', port: 1, beat: 0 }];
  const living = observed(t, table);
  await until(() => ports(living).join() === '1', 'the instance to be listed');
  table.away = true;
  const reads = table.reads;
  await until(() => table.reads > reads + 20, 'twenty failed reads');
  t.strictSame(ports(living), [1]);
  table.away = false;
  table.rows = [];
  await until(() => living.instances.length === 0, 'the current state to be listed again');
});

t.test('of two runs at one address only the later one is listed', async (t) => {
  const table = new Table();
  table.rows = [
    { run: 'earlier', port: 1, beat: 0 },
    { run: 'later', port: 1, beat: 0 },
  ];
  const living = observed(t, table);
  await until(() => living.instances.length > 0, 'the instance to be listed');
  t.strictSame(ports(living), [1]);
});
