/**
 * Sixteen clients at two instances perform every operation on tickets for a minute, on few queues,
 * so that they meet. In calm queues nothing expires and nobody deletes, so a client that was told
 * its ticket is active is alone there.
 */
import { randomInt } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import type { ExpiryRequest } from '../../../lib/control/waitlist/ticket.ts';
import type { Waitlist } from '../../../lib/control/waitlist/waitlist.ts';
import { CnapiError } from '../../../lib/platform/errors.ts';
import { MemoryHub } from '../../support/memory-bus.ts';
import { FILE_TIMEOUT_MS } from '../../support/patience.ts';
import { freshDatabase } from '../../support/postgres.ts';
import { memoryBus, startWaitlist } from './support/instances.ts';
import { complaints, migrations, newQueue, type Place, statusOf } from './support/waitlist-database.ts';

const CLIENTS = 16;
const RUN_MS = 60_000;

t.setTimeout(FILE_TIMEOUT_MS);

t.test('with sixteen clients for a minute, each queue has one holder, in order, and every wait ends', async (t) => {
  const { database, open } = await freshDatabase(t, { migrations });
  const hub = new MemoryHub();
  const config = { slowPollMs: 1_000 };
  const instances = [
    await startWaitlist(t, { database: open({ maxConnections: 8 }), bus: memoryBus(hub), config }),
    await startWaitlist(t, { database: open({ maxConnections: 8 }), bus: memoryBus(hub), config }),
  ];
  const any = (): Waitlist => pick(instances);
  const calm = Array.from({ length: 2 }, () => newQueue());
  const wild = Array.from({ length: 4 }, (_, n) => newQueue({ serverUuid: n % 2 ? 'default' : 'other' }));
  const holders = new Map<Place, string>();
  const counts: Record<string, number> = {};
  const wrong: string[] = [];
  const end = Date.now() + RUN_MS;
  const count = (what: string) => {
    counts[what] = (counts[what] ?? 0) + 1;
  };

  /** A lock used as intended. */
  async function hold(queue: Place): Promise<void> {
    const { uuid } = await any().create({ ...queue, expiry: { expiresAt: '3000' } });
    const { outcome } = await any().wait(uuid, { timeoutMs: 60_000 });
    if (outcome !== 'active') wrong.push(`a calm wait ended ${outcome}`);
    const other = holders.get(queue);
    if (other !== undefined) wrong.push(`${uuid} and ${other} hold one lock`);
    holders.set(queue, uuid);
    await sleep(randomInt(3));
    holders.delete(queue);
    await any().release(uuid);
    count('held');
  }

  const known: string[] = [];
  const waits: Promise<unknown>[] = [];
  const expiries = (): ExpiryRequest =>
    pick([{ expiresInSeconds: 3600 }, { expiresInSeconds: randomInt(1, 1_000) / 1000 }, { expiresAt: '2001' }]);

  /**
   * The new ticket is the last of its queue, unless a 'delete all' between the commit and the read
   * removed the queue.
   */
  async function create(queue: Place): Promise<string> {
    const deletedBefore = counts['delete all'] ?? 0;
    const { uuid, queue: read } = await any().create({ ...queue, expiry: expiries() });
    const isDeleted = read.length === 0 && (counts['delete all: begun'] ?? 0) > deletedBefore;
    if (isDeleted) count('create: deleted');
    else if (read.at(-1)?.uuid !== uuid) wrong.push(`${uuid} is not the last of its queue`);
    if (isDeleted && (await statusOf(database, uuid)) !== 'gone') wrong.push(`${uuid} is not in its queue`);
    return uuid;
  }

  async function disturb(queue: Place): Promise<void> {
    const uuid = known[randomInt(known.length + 1)];
    const what = uuid === undefined ? 'create' : pick(ACTIONS);
    switch (what) {
      case 'create': {
        const created = await create(queue);
        known[randomInt(40)] = created;
        const ending = any().wait(created, { timeoutMs: RUN_MS * 2 });
        waits.push(ending.then(({ outcome }) => count(`wait: ${outcome}`), tolerate));
        break;
      }
      case 'release':
        await any().release(uuid ?? '');
        break;
      case 'delete':
        await any().delete(uuid ?? '');
        break;
      case 'renew':
        await any().renew(uuid ?? '', expiries());
        break;
      case 'delete all':
        count('delete all: begun');
        await any().deleteAll(queue.serverUuid);
        break;
      default:
        what satisfies never;
    }
    count(what);
  }

  const client = async (work: () => Promise<void>): Promise<void> => {
    while (Date.now() < end) {
      await work().catch(tolerate);
      await sleep(randomInt(5));
    }
  };
  const tolerate = (error: unknown): void => {
    const isAnswer = error instanceof CnapiError && ['ResourceNotFound', 'TicketEnded'].includes(error.code);
    if (!isAnswer) wrong.push(String(error));
    else count(error.code);
  };
  await Promise.all(
    Array.from({ length: CLIENTS }, (_, n) => client(() => (n % 4 === 0 ? hold(pick(calm)) : disturb(pick(wild))))),
  );
  for (const serverUuid of ['default', 'other']) await any().deleteAll(serverUuid);
  await Promise.all(waits);

  t.comment(JSON.stringify(counts));
  t.same(wrong.slice(0, 10), []);
  t.same(await complaints(database), []);
  t.same(
    instances.map((instance) => [instance.stats().waits, instance.stats().defects]),
    [
      [0, 0],
      [0, 0],
    ],
  );
  t.ok((counts.held ?? 0) > 100 && (counts.release ?? 0) > 100 && (counts['wait: expired'] ?? 0) > 10);
});

/** The relative frequency of each operation. */
const WEIGHTS = { create: 60, release: 60, delete: 20, renew: 20, 'delete all': 1 };
type Action = keyof typeof WEIGHTS;
const ACTIONS = Object.entries(WEIGHTS).flatMap(([action, weight]) => Array<Action>(weight).fill(action as Action));

function pick<Item>(items: readonly Item[]): Item {
  const item = items[randomInt(items.length)];
  if (item === undefined) throw new Error('nothing to pick from');
  return item;
}
