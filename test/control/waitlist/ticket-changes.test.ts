/** Changes of tickets while queues are locked, on a clock that the test moves. */
import t from 'tap';
import { TicketChanges } from '../../../lib/control/waitlist/ticket-changes.ts';
import { DatabaseBusyError } from '../../../lib/platform/errors.ts';
import type { Queryable } from '../../../lib/platform/postgres/database.ts';
import { ManualClock } from '../../support/manual-clock.ts';

const queue = (id: string) => ({ serverUuid: 'default', scope: 'vm', id });

/** Queues whose row another session holds; a change of one waits as long as it is told. */
function scene() {
  const clock = new ManualClock();
  const locked = new Set<string>();
  let reads = 0;
  /** Tickets are named after their queues. */
  const database: Queryable = {
    query: async (_text, values) => {
      reads += 1;
      const [uuid] = values as readonly [string];
      return { rows: [{ server_uuid: 'default', scope: 'vm', id: uuid }] as never, rowCount: 1 };
    },
  };
  const tries: string[] = [];
  const changes = new TicketChanges({ database, clock });
  const change =
    (id: string) =>
    async ({ lockMs = 0 }: { lockMs?: number | undefined }) => {
      tries.push(id);
      const endsAt = clock.now() + lockMs;
      while (locked.has(id) && clock.now() < endsAt) await clock.sleep(1);
      if (locked.has(id)) throw new DatabaseBusyError('locked');
      return id;
    };
  return { clock, locked, changes, change, tries, reads: () => reads };
}

t.test('a change of a free queue is one try, and the queue of a ticket is not looked up', async (t) => {
  const { changes, change, tries, reads } = scene();
  t.equal(await changes.ofTicket('a', change('a')), 'a');
  t.equal(await changes.ofQueue(queue('a'), change('a')), 'a');
  t.same(tries, ['a', 'a']);
  t.equal(reads(), 0);
});

t.test('hundreds of changes of a locked queue do not hold up another queue', async (t) => {
  const { clock, locked, changes, change } = scene();
  locked.add('a');
  const held = Array.from({ length: 400 }, (_, n) =>
    (n % 2 === 0 ? changes.ofTicket('a', change('a')) : changes.ofQueue(queue('a'), change('a'))).catch(
      (error) => error,
    ),
  );
  const startedAt = clock.now();
  const other = changes.ofQueue(queue('b'), change('b')).then(() => clock.now() - startedAt);
  await clock.advance(25);
  t.equal(await other, 20, 'the first tries find the lock, and the others need no try');
  await clock.advance(4_000);
  const ended = await Promise.all(held);
  t.ok(
    ended.every((error) => error instanceof DatabaseBusyError && error.condition === 'locked'),
    'each is told to try again',
  );
});

t.test('a queue that is locked for a moment takes turns with one that stays locked', async (t) => {
  const { clock, locked, changes, change } = scene();
  locked.add('a').add('b');
  const held = Array.from({ length: 20 }, () => changes.ofQueue(queue('a'), change('a')).catch((error) => error));
  await clock.advance(500);
  const brief = changes.ofQueue(queue('b'), change('b'));
  await clock.advance(30);
  locked.delete('b');
  await clock.advance(250);
  t.equal(await brief, 'b', 'at most one turn of the other queue, and its own');
  await clock.advance(4_000);
  await Promise.all(held);
});

t.test('when the lock is gone, those that wait are carried out in order', async (t) => {
  const { clock, locked, changes, change } = scene();
  locked.add('a');
  const done: number[] = [];
  const waiting = Array.from({ length: 10 }, async (_, n) => {
    await changes.ofQueue(queue('a'), change('a'));
    done.push(n);
  });
  await clock.advance(300);
  t.same(done, []);
  locked.delete('a');
  await clock.advance(200);
  await Promise.all(waiting);
  t.same(
    done.toSorted((a, b) => a - b),
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
  );
  t.equal(await changes.ofTicket('a', change('a')), 'a', 'and the queue is as any other');
});

t.test('another error is not tried again', async (t) => {
  const { changes } = scene();
  let tries = 0;
  const slow = async () => {
    tries += 1;
    throw new DatabaseBusyError('slow');
  };
  await t.rejects(changes.ofQueue(queue('a'), slow), new DatabaseBusyError('slow'));
  t.equal(tries, 1);
});
