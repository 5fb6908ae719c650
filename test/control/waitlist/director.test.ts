/** The background work of the waitlist on a database that answers as the test says. */
import t from 'tap';
import { Director } from '../../../lib/control/waitlist/director.ts';
import type { MovedTicket } from '../../../lib/control/waitlist/ticket-store.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import { systemRandom } from '../../../lib/platform/random.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import { createMemoryBus, MemoryHub } from '../../support/memory-bus.ts';

/** The maximum number of tickets that one statement expires. More may be due. */
const BATCH = 200;
/** More statements than any test needs. */
const MAX_ASKED = 20;
const expired = (count: number): MovedTicket[] =>
  Array.from({ length: count }, (_, n) => ({ uuid: `${n}`, status: 'expired' }));

/** A director whose statements `answer` answers; `asked` counts them. */
function setUp(answer: (asked: number) => object[]) {
  const clock = new ManualClock();
  const log = silentLogger;
  const world = { asked: 0, announced: [] as MovedTicket[] };
  const director = new Director({
    database: {
      async query<Row>() {
        world.asked += 1;
        if (world.asked > MAX_ASKED) throw new Error('it does not end');
        const rows = answer(world.asked) as Row[];
        return { rows, rowCount: rows.length };
      },
    },
    bus: createMemoryBus({ hub: new MemoryHub(), clock, random: systemRandom, log }),
    clock,
    log,
    announce: (moved) => world.announced.push(...moved),
  });
  return { clock, director, world };
}

t.test('a round of expiries goes on while more may be due, and the next one comes half a second later', async (t) => {
  const rounds: Record<number, MovedTicket[]> = {
    1: [...expired(BATCH - 1), { uuid: 'next', status: 'active' }],
    2: expired(BATCH - 1),
  };
  const { clock, director, world } = setUp((asked) => rounds[asked] ?? []);
  director.start();
  await clock.advance(500);
  t.same([world.asked, world.announced.length, director.expired], [2, 2 * BATCH - 1, 2 * BATCH - 2]);
  await clock.advance(500);
  t.equal(world.asked, 3);
  await director.stop();
  await clock.advance(5_000);
  t.equal(world.asked, 3);
});

t.test('a stop ends a round of expiries, and what its last statement moved is announced', async (t) => {
  const stops: Promise<void>[] = [];
  const { clock, director, world } = setUp((asked) => {
    if (asked === 3) stops.push(director.stop());
    return asked < 10 ? expired(BATCH) : [];
  });
  director.start();
  await clock.advance(500);
  await Promise.all(stops);
  t.same([world.asked, world.announced.length], [3, 3 * BATCH]);
});

t.test('queues without an active ticket are counted, and those that move are announced', async (t) => {
  const { director, world } = setUp((asked) =>
    asked === 1 ? [] : [7, 8].map((queue) => ({ queue, uuid: null, status: null })).concat(moved),
  );
  const moved = [{ queue: 7, uuid: 'next', status: 'active' }] as never[];
  await director.repair();
  t.same([director.defects, world.announced], [0, []]);
  await director.repair();
  t.same([director.defects, world.announced], [2, [{ uuid: 'next', status: 'active' }]]);
});
