import t from 'tap';
import { DatabaseBusyError, DatabaseUnavailableError } from '../../../../lib/platform/errors.ts';
import { BatchQueue, type BatchQueueDeps } from '../../../../lib/platform/postgres/batches/batch-queue.ts';
import type { Queryable } from '../../../../lib/platform/postgres/database.ts';
import { ManualClock } from '../../../support/manual-clock.ts';
import { matchLists } from '../../../support/match-lists.ts';
import { recordingLogger } from '../../../support/recording-logger.ts';

interface World {
  /** The items of each statement; those with a short lock timeout are marked. */
  statements: string[];
  done: string[];
  /** Items with locked rows: their statements fail or skip them. */
  locked: Set<string>;
  /** Items whose statements take this long, or until their time limit. */
  slow: Map<string, number>;
  refused: Set<string>;
  isDown: boolean;
  skipsLocked: boolean;
  /** A larger statement, in characters, has no answer after DEADLINE_MS. */
  most: number;
}

const DEADLINE_MS = 4_000;
const STATEMENT_MS = 3_000;

function setUp(options: Partial<BatchQueueDeps<string>> = {}) {
  const clock = new ManualClock();
  const logged: Record<string, unknown>[] = [];
  const world: World = {
    statements: [],
    done: [],
    locked: new Set(),
    slow: new Map(),
    refused: new Set(),
    isDown: false,
    skipsLocked: false,
    most: Number.POSITIVE_INFINITY,
  };
  const database: Queryable = {
    async query(_text, values = [], { lockTimeoutMs, statementTimeoutMs = STATEMENT_MS } = {}) {
      const items = values as string[];
      world.statements.push(items.join(' ') + (lockTimeoutMs === undefined ? '' : ' !'));
      const size = items.join('').length;
      await clock.sleep(size > world.most ? DEADLINE_MS : Math.max(1, (DEADLINE_MS * size) / world.most));
      if (size > world.most) throw new DatabaseBusyError('unanswered');
      const slowMs = Math.max(0, ...items.map((one) => world.slow.get(one) ?? 0));
      await clock.sleep(Math.min(slowMs, statementTimeoutMs));
      if (slowMs > statementTimeoutMs) throw new DatabaseBusyError('slow');
      if (world.isDown) throw new DatabaseUnavailableError(new Error('connection refused'));
      if (items.some((one) => world.refused.has(one))) throw new Error('such a value');
      if (!world.skipsLocked && items.some((one) => world.locked.has(one))) throw new DatabaseBusyError('locked');
      world.done.push(...items.filter((one) => !world.locked.has(one)));
      return { rows: [], rowCount: 0 };
    },
  };
  const queue = new BatchQueue<string>({
    clock,
    log: recordingLogger(logged),
    database,
    what: 'items of a test',
    keyOf: (item) => item[0] as string,
    maxBatch: 8,
    async work(items, connection) {
      await connection.query('', items);
      return world.skipsLocked ? items.filter((one) => world.locked.has(one)) : undefined;
    },
    ...options,
  });
  return { clock, logged, world, queue };
}

t.test('items that gather during a statement go into the next one', async (t) => {
  const { clock, queue, world } = setUp({ maxBatch: 3 });
  for (const item of ['a', 'b', 'c', 'd', 'e']) queue.add(item);
  await clock.advance(10);
  t.same(world.statements, ['a', 'b c d', 'e']);
});

t.test('an item may wait for more to gather, and an urgent one takes it along', async (t) => {
  const { clock, queue, world } = setUp();
  queue.add('a', 25);
  await clock.advance(20);
  t.same(world.statements, []);
  queue.add('b');
  await clock.advance(10);
  t.same(world.statements, ['a b']);
});

t.test('a locked item is isolated in parts while all others are done at once', async (t) => {
  const { clock, queue, world } = setUp({ maxBatch: 16 });
  world.locked.add('f');
  queue.add('0');
  for (const item of 'abcdefghijklmnop') queue.add(item);
  await clock.advance(20);
  t.same(world.done.toSorted(), [...'0abcdeghijklmnop']);
  t.same(world.statements, [
    '0',
    'a b c d e f g h i j k l m n o p',
    ...['a b !', 'c d !', 'e f !', 'g h !', 'i j !', 'k l !', 'm n !', 'o p !'],
    ...['e !', 'f !'],
  ]);
  t.equal(queue.setAside, 1);
  queue.add('q');
  await clock.advance(5);
  t.ok(world.done.includes('q'));
  const tried = world.statements.length;
  await clock.advance(10_000);
  const tries = world.statements.slice(tried);
  t.ok(tries.length >= 8 && tries.length <= 15, 'it is tried again about once a second');
  t.ok(tries.every((one) => one === 'f !'));
  world.locked.clear();
  await clock.advance(1_100);
  t.same([world.done.at(-1), queue.setAside], ['f', 0]);
});

t.test('one slow item delays its 499 neighbours by less than two limits of a statement', async (t) => {
  for (const position of [0, 250, 499]) {
    const { clock, queue, world } = setUp({ keyOf: (item) => item, maxBatch: 500 });
    const items = Array.from({ length: 500 }, (_, n) => `item ${n}`);
    const slow = `item ${position}`;
    world.slow.set(slow, 2 * STATEMENT_MS);
    queue.add('first');
    queue.addAll(items);
    await clock.advance(2 * STATEMENT_MS);
    t.same(new Set(world.done), new Set(['first', ...items.filter((item) => item !== slow)]), slow);
    t.equal(queue.setAside, 1);
    world.slow.set(slow, 0.9 * STATEMENT_MS);
    await clock.advance(10 * STATEMENT_MS);
    t.same([world.done.at(-1), queue.size], [slow, 0], 'alone it may take the full time');
  }
});

t.test('a batch that takes too long because it is large is done in parts', async (t) => {
  const { clock, queue, world } = setUp({
    keyOf: (item) => item,
    maxBatch: 500,
    work: async (items, database) => {
      world.slow.set(items[0] as string, items.length * 10);
      await database.query('', items);
      return undefined;
    },
  });
  queue.add('first');
  queue.addAll(Array.from({ length: 500 }, (_, n) => `item ${n}`));
  await clock.advance(3 * STATEMENT_MS);
  t.equal(world.done.length, 501, 'each item takes 10 ms');
  t.equal(world.statements.length, 2 + 8);
});

t.test('many locked items use no more than one statement in addition to the lanes', async (t) => {
  let running = 0;
  let most = 0;
  const { clock, queue } = setUp({
    keyOf: (item) => item,
    maxBatch: 50,
    concurrency: 2,
    work: async () => {
      running += 1;
      most = Math.max(most, running);
      await clock.sleep(50);
      running -= 1;
      throw new DatabaseBusyError('locked');
    },
  });
  for (let n = 0; n < 151; n += 1) queue.add(String(n));
  await clock.advance(60_000);
  t.equal(most, 3);
  t.equal(queue.setAside, 151);
});

t.test('items that a statement skips are tried again together after a pause', async (t) => {
  const { clock, queue, world } = setUp();
  world.skipsLocked = true;
  for (const one of ['b', 'c']) world.locked.add(one);
  queue.add('0');
  for (const item of ['a', 'b', 'c', 'd']) queue.add(item);
  await clock.advance(10);
  t.same(world.done, ['0', 'a', 'd']);
  t.equal(queue.setAside, 2);
  world.locked.clear();
  await clock.advance(110);
  t.same(world.statements.slice(2), ['b c !']);
  t.same(world.done, ['0', 'a', 'd', 'b', 'c']);
});

t.test('a row that stays locked is logged once', async (t) => {
  const { clock, logged, queue, world } = setUp();
  for (const one of ['a', 'b']) {
    world.locked.add(one);
    queue.add(one);
  }
  await clock.advance(30_000);
  matchLists(t, logged, [
    {
      level: 'warn',
      what: 'items of a test',
      msg: 'database work: an item waits for a locked row; the others continue',
    },
  ]);
  t.equal(logged.length, 1);
});

t.test('while the database is down all items wait in order, with one attempt per second', async (t) => {
  const { clock, logged, queue, world } = setUp();
  world.isDown = true;
  for (const item of ['a', 'b', 'c']) queue.add(item);
  await clock.advance(10_000);
  t.ok(world.statements.length <= 14, `${world.statements.length} statements in 10 s`);
  t.same([world.done, queue.setAside], [[], 0]);
  world.isDown = false;
  await clock.advance(1_100);
  t.same(world.done, ['a', 'b', 'c']);
  matchLists(t, logged, [
    { msg: 'database work: waits for the database' },
    { msg: 'database work: continues after a failure' },
  ]);
});

t.test('a batch that is too large for the network is divided, and later batches are smaller at once', async (t) => {
  const { clock, logged, queue, world } = setUp({ sizeOf: (item) => item.length, maxBatchSize: 64 });
  world.most = 10;
  queue.add('-');
  for (const item of 'abcdefgh') queue.add(`${item}xxx`);
  await clock.advance(20 * DEADLINE_MS);
  t.equal(world.done.length, 9, 'all pass');
  t.same(world.statements.slice(1), [
    'axxx bxxx cxxx dxxx exxx fxxx gxxx hxxx',
    'axxx bxxx cxxx dxxx !',
    'axxx bxxx !',
    'cxxx dxxx !',
    'exxx fxxx !',
    'gxxx hxxx !',
  ]);
  const before = world.statements.length;
  for (const item of 'ijklmnop') queue.add(`${item}xxx`);
  await clock.advance(20 * DEADLINE_MS);
  const later = world.statements.slice(before);
  t.ok(
    later.every((one) => one.split(' ').length <= 2),
    later.join(', '),
  );
  t.same(logged, [], 'slow is not down');
});

t.test('batches grow again when the network is faster', async (t) => {
  const { clock, queue, world } = setUp();
  world.most = 1;
  for (const item of '0abcdefgh') queue.add(item);
  await clock.advance(40 * DEADLINE_MS);
  t.equal(world.done.length, 9);
  world.most = 1_000;
  for (let round = 0; round < 10; round += 1) {
    for (const item of 'abcdefghijklmnop') queue.add(item);
    await clock.advance(DEADLINE_MS);
  }
  t.equal(world.done.length, 169);
  t.same(world.statements.slice(-2), ['b c d e f g h i', 'j k l m n o p']);
});

t.test('an item that never passes the network is tried less and less often and stops no other', async (t) => {
  const { clock, logged, queue, world } = setUp({ sizeOf: (item) => item.length, maxBatchSize: 40 });
  world.most = 10;
  queue.add('0');
  queue.add('large, and more');
  for (const item of 'abc') queue.add(item);
  await clock.advance(3 * DEADLINE_MS);
  t.same(world.done, ['0', 'a', 'b', 'c']);
  t.equal(queue.setAside, 1);
  const before = world.statements.length;
  const began = world.done.length;
  for (let second = 0; second < 200; second += 1) {
    queue.add(String.fromCharCode(200 + second));
    await clock.advance(1_000);
  }
  t.equal(world.done.length - began, 200, 'each small item is done within its second');
  const tries = world.statements.slice(before).filter((one) => one.startsWith('large')).length;
  t.ok(tries >= 8 && tries <= 15, `${tries} tries in 200 s`);
  matchLists(t, logged, [{ level: 'warn', key: 'l', size: 15, msg: /did not arrive in time, .* the others continue/ }]);
  t.equal(logged.length, 1);
  world.most = 1_000;
  await clock.advance(5 * DEADLINE_MS);
  t.same([world.done.at(-1), queue.size], ['large, and more', 0]);
});

t.test('the owner of unanswered items may drop them', async (t) => {
  const lost: string[] = [];
  const { clock, queue, world } = setUp({ onLost: (items) => lost.push(...items) > 0 });
  world.most = 2;
  for (const item of '0abcd') queue.add(item);
  await clock.advance(2 * DEADLINE_MS);
  t.same([world.done, lost, queue.size], [['0'], ['a', 'b', 'c', 'd'], 0]);
});

t.test('a value that the database refuses is isolated, and its owner decides what to do', async (t) => {
  const refused: string[] = [];
  const { clock, queue, world } = setUp({
    onRefused: (item) => {
      refused.push(item);
      return item === 'b' ? 'b, smaller' : undefined;
    },
  });
  for (const one of ['b', 'd']) world.refused.add(one);
  queue.add('0');
  for (const item of ['a', 'b', 'c', 'd']) queue.add(item);
  await clock.advance(1_000);
  t.same(refused.toSorted(), ['b', 'd']);
  t.same(world.done.toSorted(), ['0', 'a', 'b, smaller', 'c']);
});

t.test('a key is in one statement at a time, and its items keep their order', async (t) => {
  const { clock, queue, world } = setUp({ concurrency: 3 });
  world.locked.add('a1');
  for (const item of ['a1', 'a2', 'b1', 'a3', 'b2']) queue.add(item);
  await clock.advance(50);
  t.same(world.done, ['b1', 'b2'], 'no item overtakes the locked one of its key');
  world.locked.clear();
  await clock.advance(1_100);
  t.same(world.done, ['b1', 'b2', 'a1', 'a2', 'a3']);
});

t.test('waiting items of one key are merged if possible', async (t) => {
  const { clock, queue, world } = setUp({ join: (earlier, later) => `${earlier}+${later}` });
  world.isDown = true;
  queue.add('a1');
  await clock.advance(5);
  queue.add('b1');
  queue.add('a2');
  world.isDown = false;
  await clock.advance(1_000);
  t.same(world.done, ['a1+a2', 'b1']);
  queue.add('c1', 100);
  queue.delete('c');
  await clock.advance(200);
  t.equal(world.done.length, 2, 'a deleted item is not done');
});

t.test('a stop waits for running statements only, and a finish tries each item once more', async (t) => {
  const one = setUp({ maxBatch: 2 });
  for (const item of ['a', 'b', 'c', 'd']) one.queue.add(item);
  const stopping = one.queue.stop();
  await one.clock.advance(10);
  t.same(await stopping, ['b', 'c', 'd']);
  t.same(one.world.done, ['a']);
  one.queue.add('e');
  await one.clock.advance(10);
  t.same(one.world.done, ['a'], 'later items are not accepted');

  const two = setUp({ maxBatch: 4 });
  two.world.locked.add('c');
  for (const item of ['a', 'b', 'c', 'c2', 'd']) two.queue.add(item);
  const finishing = two.queue.finish();
  await two.clock.advance(50);
  t.same(await finishing, ['c', 'c2']);
  t.same(two.world.done.toSorted(), ['a', 'b', 'd']);
});

t.test('a finish tries items once that were skipped together and then divided', async (t) => {
  const { clock, queue, world } = setUp();
  world.skipsLocked = true;
  for (const one of ['b', 'c', 'd']) world.locked.add(one);
  for (const item of ['a', 'b', 'c', 'd']) queue.add(item);
  await clock.advance(10);
  world.skipsLocked = false;
  world.slow.set('b', 50);
  await clock.advance(160);
  t.same(world.statements.slice(2), ['b c d !', 'b !'], 'the skipped ones fail together; their parts begin');
  world.locked.clear();
  await Promise.all([queue.finish(), clock.advance(1_000)]);
  t.same(world.done.toSorted(), ['a', 'b', 'c', 'd']);
});

t.test('adding an item costs the same however many are set aside or wait behind a locked one', async (t) => {
  /** CPU time of 4,000 additions, half of them behind others with the same key. */
  const cost = async (setAside: number) => {
    const { clock, queue } = setUp({
      keyOf: (item) => item,
      maxBatch: 10_000,
      work: async (items) => (items.some((one) => one.startsWith('held')) ? items : clock.sleep(10).then(() => [])),
    });
    queue.add('0');
    for (let n = 0; n < setAside; n += 1) queue.add(`held ${n}`);
    await clock.advance(11);
    t.equal(queue.setAside, setAside);
    const before = process.cpuUsage();
    for (let n = 0; n < 2_000; n += 1) {
      queue.add(`held ${n}`);
      queue.add(`free ${n}`);
    }
    const { user, system } = process.cpuUsage(before);
    await Promise.all([queue.stop(), clock.advance(10)]);
    return user + system;
  };
  const least = async (setAside: number) => Math.min(await cost(setAside), await cost(setAside), await cost(setAside));
  const [many, none] = [await least(4_000), await least(0)];
  t.ok(many < 20 * none, `${many} µs, and ${none} with nothing set aside`);
});
