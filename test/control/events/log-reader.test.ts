/** The reader that all followers of one instance share, on a log that the test writes. */
import t from 'tap';
import type { LoggedEvent } from '../../../lib/control/events/event.ts';
import { positionOf } from '../../../lib/control/events/event.ts';
import { LogReader, WINDOW_EVENTS } from '../../../lib/control/events/log-reader.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import type { Queryable } from '../../../lib/platform/postgres/database.ts';
import { ManualClock } from '../../support/manual-clock.ts';

/** Longer than the pause between two reads, shorter than two pauses. */
const ROUND_MS = 160;

function setUp() {
  const clock = new ManualClock();
  const world = { log: [] as LoggedEvent[], last: 0, numberings: 0, pages: 0, setBacks: 0 };
  const append = (count: number, storedAtMs = 1_000) => {
    for (let each = 0; each < count; each += 1) {
      world.last += 1;
      world.log.push({
        ...{ id: world.last, kind: 'task', serverUuid: null, body: {} },
        storedAt: new Date(storedAtMs + world.last),
      });
    }
  };
  const query = async <Row>(_text: string, values: readonly unknown[] = []) => {
    world.pages += 1;
    const [from, upTo, , , limit] = values as [number, number, unknown, unknown, number];
    const found = world.log.filter(({ id }) => id >= from && id <= upTo).slice(0, limit);
    const rows = found.map(({ serverUuid, storedAt, ...row }) => ({
      ...row,
      server_uuid: serverUuid,
      stored_at: storedAt,
    }));
    return { rows: rows as Row[], rowCount: rows.length };
  };
  const database: Queryable = { query };
  const reader = new LogReader({
    database,
    clock,
    log: silentLogger,
    number: async () => {
      world.numberings += 1;
      return world.last;
    },
    onSetBack: () => {
      world.setBacks += 1;
    },
  });
  const event = (id: number) => world.log.find((one) => one.id === id) as LoggedEvent;
  const since = (id: number, limit = 100) => {
    const page = reader.since(positionOf(event(id)), limit);
    return typeof page === 'object' ? { ids: page.events.map((one) => one.id), isEnd: page.isEnd } : page;
  };
  return { append, clock, event, reader, since, world };
}

t.test('the log is read while somebody follows, and then no more', async (t) => {
  const { append, clock, reader, since, world } = setUp();
  append(3);
  await clock.advance(1_000);
  t.equal(world.numberings, 0);
  let [calls, others] = [0, 0];
  const leave = reader.listen(() => {
    calls += 1;
  });
  const leaveToo = reader.listen(() => {
    others += 1;
  });
  await clock.advance(ROUND_MS);
  t.equal(calls, 1, 'the reader begins at the end of the log');
  t.equal(others, 1);
  t.same(since(3), { ids: [], isEnd: true });
  t.equal(since(2), undefined, 'what was stored before is not in the window');
  await clock.advance(1_000);
  t.equal(calls, 1, 'nobody is woken when there is nothing new');
  append(2);
  await clock.advance(ROUND_MS);
  t.equal(calls, 2);
  t.same(since(3), { ids: [4, 5], isEnd: true });
  leave();
  append(1);
  await clock.advance(ROUND_MS);
  t.same([calls, others], [2, 3]);
  leaveToo();
  await clock.advance(2 * ROUND_MS);
  t.equal(since(5), undefined, 'the window is dropped');
  const before = world.numberings;
  append(1);
  await clock.advance(5_000);
  t.equal(world.numberings, before);
  reader.listen(() => {});
  await clock.advance(ROUND_MS);
  t.same(since(7), { ids: [], isEnd: true }, 'the next follower makes it read again');
  await reader.stop();
});

t.test('a follower takes as many events as it wants, and is told whether more are waiting', async (t) => {
  const { append, clock, event, reader, since } = setUp();
  append(1);
  reader.listen(() => {});
  await clock.advance(ROUND_MS);
  append(4);
  await clock.advance(ROUND_MS);
  t.same(since(1, 2), { ids: [2, 3], isEnd: false });
  t.same(since(1, 3), { ids: [2, 3, 4], isEnd: false });
  t.same(since(1, 4), { ids: [2, 3, 4, 5], isEnd: true });
  t.equal(reader.since({ id: 3, storedAtMs: event(3).storedAt.getTime() + 1 }, 10), 'foreign');
  t.equal(reader.since({ id: 6, storedAtMs: 0 }, 10), undefined);
  t.ok(reader.isPast(4));
  t.notOk(reader.isPast(5));
  await reader.stop();
  t.notOk(setUp().reader.isPast(0), 'a reader that has read nothing is past nothing');
});

t.test('many new events are read page by page into a window of bounded size', async (t) => {
  const { append, clock, reader, since, world } = setUp();
  let calls = 0;
  append(1);
  reader.listen(() => {
    calls += 1;
  });
  await clock.advance(ROUND_MS);
  append(WINDOW_EVENTS + 500);
  const before = world.pages;
  await clock.advance(ROUND_MS);
  t.equal(world.pages - before, 5);
  t.equal(calls, 6, 'followers are woken at each page');
  const oldest = world.last - WINDOW_EVENTS + 1;
  t.equal(since(oldest - 1), undefined);
  t.same(since(oldest, 1), { ids: [oldest + 1], isEnd: false });
  t.same(since(world.last - 1), { ids: [world.last], isEnd: true });
  await reader.stop();
});

t.test('a log that was set back is read from its new end, and its followers end', async (t) => {
  const rows: { name: string; change: (world: ReturnType<typeof setUp>) => void; end: number }[] = [
    {
      name: 'it has fewer events',
      change: ({ world }) => {
        world.log.splice(2);
        world.last = 2;
      },
      end: 2,
    },
    {
      name: 'the last event read is another one',
      change: ({ append, world }) => {
        world.log.splice(2);
        world.last = 2;
        append(4, 9_000);
      },
      end: 6,
    },
  ];
  for (const { name, change, end } of rows) {
    const scene = setUp();
    const { append, clock, reader, since, world } = scene;
    append(4);
    reader.listen(() => {});
    await clock.advance(ROUND_MS);
    change(scene);
    await clock.advance(ROUND_MS);
    t.equal(world.setBacks, 1, name);
    t.same(since(end), { ids: [], isEnd: true }, name);
    append(1);
    await clock.advance(ROUND_MS);
    t.same(since(end), { ids: [end + 1], isEnd: true }, name);
    t.equal(world.setBacks, 1, `${name}: it is reported once`);
    await reader.stop();
  }
});

t.test('events that are deleted before they are read leave no hole in the window', async (t) => {
  const { append, clock, reader, since, world } = setUp();
  append(2);
  reader.listen(() => {});
  await clock.advance(ROUND_MS);
  append(3);
  world.log.splice(0, 3);
  await clock.advance(ROUND_MS);
  t.equal(reader.since({ id: 2, storedAtMs: 0 }, 10), undefined, 'its follower reads the log and receives the gap');
  t.same(since(4), { ids: [5], isEnd: true });
  append(2);
  world.log.splice(0);
  await clock.advance(ROUND_MS);
  t.ok(reader.isPast(6), 'deleted events are passed');
  t.equal(reader.since({ id: 5, storedAtMs: 0 }, 10), undefined);
  append(1);
  await clock.advance(ROUND_MS);
  t.same(since(8), { ids: [], isEnd: true });
  t.equal(world.setBacks, 0);
  await reader.stop();
});

t.test('a reader that stops wakes its followers', async (t) => {
  const { append, clock, reader } = setUp();
  append(1);
  let calls = 0;
  reader.listen(() => {
    calls += 1;
  });
  await clock.advance(ROUND_MS);
  await reader.stop();
  t.equal(calls, 2);
  t.equal(clock.timers, 0);
});
