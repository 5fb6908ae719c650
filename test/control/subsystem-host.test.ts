import t from 'tap';
import { counter } from '../../lib/control/metrics/metric.ts';
import type { Subsystem, SubsystemDefinition } from '../../lib/control/subsystem.ts';
import { SubsystemHost } from '../../lib/control/subsystem-host.ts';
import { migrations } from '../../lib/control/subsystem-list.ts';
import { DatabaseUnavailableError } from '../../lib/platform/errors.ts';
import { silentLogger } from '../../lib/platform/log.ts';
import type { Database } from '../../lib/platform/postgres/database.ts';
import { systemClock } from '../../lib/platform/time/clock.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { matchLists } from '../support/match-lists.ts';
import { freshDatabase } from '../support/postgres.ts';
import { recordingLogger } from '../support/recording-logger.ts';

/** A subsystem that notes each call of a hook in `calls`. */
function noting(name: string, calls: string[], more: Partial<Subsystem> = {}): Subsystem {
  const note = (hook: string) => () => void calls.push(`${name}.${hook}`);
  const noteLater = (hook: string) => async () => void calls.push(`${name}.${hook}`);
  return {
    name,
    prepare: noteLater('prepare'),
    start: note('start'),
    beginDrain: note('beginDrain'),
    endDrain: note('endDrain'),
    beginStop: note('beginStop'),
    disconnect: noteLater('disconnect'),
    stop: noteLater('stop'),
    ...more,
  };
}

/** Answers the question whether it is there, and takes no statement that changes it. */
function emptyDatabase(calls: string[] = []): Database {
  return {
    query: async () => ({ rows: [], rowCount: 0 }),
    stream: () => {
      throw new Error('not used');
    },
    transaction: async (work: (connection: never) => unknown) =>
      work({ query: async () => ({ rows: [], rowCount: 0 }) } as never),
    stop: async () => void calls.push('database.stop'),
  } as unknown as Database;
}

const hostOf = (database: Database, more: Partial<ConstructorParameters<typeof SubsystemHost>[0]> = {}) =>
  new SubsystemHost({ databases: [database], migrations: [], clock: systemClock, log: silentLogger, ...more });

t.test('parts are prepared and started in their order, and stopped in phases, the databases last', async (t) => {
  const calls: string[] = [];
  const instance = hostOf(emptyDatabase(calls));
  instance.add(noting('listener', calls), noting('link', calls), { name: 'nothing' });
  await instance.start();
  t.ok(instance.isLive);
  t.strictSame(calls.splice(0), ['listener.prepare', 'link.prepare', 'listener.start', 'link.start']);
  instance.beginDrain();
  instance.endDrain();
  t.strictSame(calls.splice(0), ['listener.beginDrain', 'link.beginDrain', 'listener.endDrain', 'link.endDrain']);
  await Promise.all([instance.stop(), instance.stop()]);
  t.strictSame(
    calls,
    [
      ...['listener.beginStop', 'link.beginStop'],
      ...['link.disconnect', 'listener.disconnect'],
      ...['listener.stop', 'link.stop', 'database.stop'],
    ],
    'the last part closes its connections first; a second stop does nothing',
  );
  t.notOk(instance.isLive);
  await instance.stopped;
});

t.test('an instance that is stopped while a part starts does not start the next one', async (t) => {
  const calls: string[] = [];
  const instance = hostOf(emptyDatabase());
  const slow = {
    start: (signal: AbortSignal) =>
      new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve(), { once: true })),
  };
  const isStarting = Promise.withResolvers<void>();
  const first = noting('first', calls, {
    start: (signal) => {
      isStarting.resolve();
      return slow.start(signal);
    },
  });
  instance.add(first, noting('second', calls));
  const starting = instance.start();
  await isStarting.promise;
  await instance.stop();
  await starting;
  t.notOk(instance.isLive);
  t.notOk(calls.includes('second.start'));
  t.ok(calls.includes('second.stop'), 'what never started is stopped as well');
});

t.test('a part that cannot start fails the start, unless the instance was stopped meanwhile', async (t) => {
  const instance = hostOf(emptyDatabase());
  instance.add({ name: 'listener', start: () => Promise.reject(new Error('the port is taken')) });
  await t.rejects(instance.start(), { message: 'the port is taken' });
  await instance.stop();
});

t.test('metrics, chores and unfinished work are those of all parts', async (t) => {
  const instance = hostOf(emptyDatabase());
  const chore = { name: 'old things', batch: async () => 0 };
  const metric = counter('things_total', 'Things', () => 1);
  instance.add(
    { name: 'a', unfinished: () => 2, metrics: [metric] },
    { name: 'b', unfinished: () => 3, chores: [chore] },
    { name: 'c' },
  );
  t.equal(instance.unfinished(), 5);
  t.strictSame(instance.metrics, [metric]);
  t.strictSame(instance.chores, [chore]);
  await instance.stop();
});

t.test('an instance whose database fails during its preparation waits for it and starts', async (t) => {
  const { database } = await freshDatabase(t);
  let prepared = 0;
  const flaky: Database = {
    query: (...statement) => database.query(...statement),
    transaction: (...work) => {
      prepared += 1;
      if (prepared === 3) return Promise.reject(new DatabaseUnavailableError(new Error('gone')));
      return database.transaction(...work);
    },
    stop: async () => {},
  };
  const instance = hostOf(flaky, { migrations });
  let preparations = 0;
  instance.add({
    name: 'noun',
    async prepare() {
      preparations += 1;
      if (preparations === 1) throw new DatabaseUnavailableError(new Error('gone again'));
    },
  });
  await instance.start();
  t.ok(prepared > 3, 'it continued after the failure');
  t.equal(preparations, 2, 'a part is prepared again');
  t.ok(instance.isLive);
  await instance.stop();
});

t.test('a part that fails to stop, or not in time, is named and does not keep others running', async (t) => {
  const records: Record<string, unknown>[] = [];
  const calls: string[] = [];
  const clock = new ManualClock();
  const instance = hostOf(emptyDatabase(calls), { clock, log: recordingLogger(records) });
  instance.add(
    { name: 'stuck', stop: () => new Promise<void>(() => {}) },
    { name: 'broken', stop: () => Promise.reject(new Error('no disk')) },
    noting('good', calls),
  );
  const stopping = instance.stop();
  for (let turns = 0; turns < 5; turns++) await clock.advance(0);
  matchLists(t, records, [
    { level: 'warn', subsystem: 'broken', reason: 'no disk', msg: 'instance: subsystem failed while stopping' },
  ]);
  t.ok(calls.includes('good.stop'));
  t.notOk(calls.includes('database.stop'), 'the databases wait for it');
  await clock.advance(2_500);
  t.match(records[1], {
    level: 'warn',
    subsystem: 'stuck',
    after_ms: 2500,
    msg: 'instance: subsystem did not stop in time',
  });
  await stopping;
  t.ok(calls.includes('database.stop'));
  t.equal(records.length, 3, 'it reports that it has stopped');
});

t.test('each definition is opened with the parts of the instance, in the order of the list', async (t) => {
  const calls: string[] = [];
  const instance = hostOf(emptyDatabase(calls));
  const defined = (name: string): SubsystemDefinition<{ zone: string }> => ({
    open: ({ zone }) => noting(`${zone} ${name}`, calls, { chores: [{ name, batch: async () => 0 }] }),
  });
  const known: string[] = [];
  const last: SubsystemDefinition<{ zone: string }> = {
    open() {
      known.push(...instance.chores.map(({ name }) => name));
      return { name: 'last' };
    },
  };
  instance.open([defined('listener'), { migrations: [] }, defined('link'), last], { zone: 'a' });
  t.strictSame(known, ['listener', 'link'], 'a later one knows what the earlier ones contribute');
  await instance.start();
  t.strictSame(calls, ['a listener.prepare', 'a link.prepare', 'a listener.start', 'a link.start']);
  await instance.stop();
});
