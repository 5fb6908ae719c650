/**
 * Compares the small worlds' queue with the waitlist's functions themselves: the same operations
 * give the same tickets and answers.
 */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import {
  deleteQueues,
  deleteTicket,
  expireTickets,
  readLastQueue,
  releaseTicket,
  renewTicket,
  repairQueues,
} from '../../lib/control/waitlist/ticket-store.ts';
import type { Database } from '../../lib/platform/postgres/database.ts';
import {
  backdate,
  bounds,
  createTicket,
  migrations,
  newQueue,
  newTicket,
  type Place,
  rowsOf,
} from '../control/waitlist/support/waitlist-database.ts';
import { COMPUTING_TIMEOUT_MS } from '../support/patience.ts';
import { freshDatabase } from '../support/postgres.ts';
import { type Answers, checkConformance } from './conformance.ts';
import type { Dice } from './dice.ts';
import * as model from './waitlist/model.ts';

interface Scene {
  database: Database;
  dice: Dice;
  place: Place;
  queue: model.Queue;
}

const NONE: Answers = { real: undefined, model: undefined };
const MOST = 10_000;
const LATER = { inMs: 3_600_000 };
const LONG_AGO = { atMs: Date.UTC(2020, 0), text: '2020-01-01T00:00:00Z' };

const isLive = ({ status }: model.Ticket): boolean => status === 'active' || status === 'queued';

/** Rarely a ticket that has ended. */
function some({ dice, queue: { tickets } }: Scene): string | undefined {
  return dice.of(tickets.filter((ticket) => isLive(ticket) || dice.chance(0.2)))?.uuid;
}

/** The tickets whose status a step changed, with the new status. */
function moved(before: model.Queue, after: model.Queue): unknown {
  return before.tickets
    .flatMap(({ uuid, status }) => {
      const now = model.find(after, uuid)?.status ?? 'deleted';
      return now === status ? [] : [[uuid, now]];
    })
    .sort();
}

const movedIn = (rows: readonly { uuid: string; status: string }[]): unknown =>
  rows.map(({ uuid, status }) => [uuid, status]).sort();

/** Takes the model's step; the answer of the real function is compared with the changes. */
async function stepped(
  scene: Scene,
  next: model.Queue,
  real: Promise<readonly { uuid: string; status: string }[]>,
): Promise<Answers> {
  const before = scene.queue;
  scene.queue = next;
  return { real: movedIn(await real), model: moved(before, next) };
}

const operations: Record<string, (scene: Scene) => Promise<Answers>> = {
  async create(scene) {
    const { database, dice, place } = scene;
    if (scene.queue.tickets.filter(isLive).length >= 5) return NONE;
    const isDue = dice.chance(0.15);
    const ticket = newTicket(place, { expiry: isDue ? LONG_AGO : LATER });
    scene.queue = model.create(scene.queue, ticket.uuid, isDue);
    const rows = rowsOf(await createTicket(database, ticket, bounds));
    return { real: rows.at(-1)?.status, model: model.find(scene.queue, ticket.uuid)?.status };
  },
  async timeUp(scene) {
    const uuid = some(scene);
    if (uuid === undefined) return NONE;
    const tickets = scene.queue.tickets.map((ticket) => (ticket.uuid === uuid ? { ...ticket, isDue: true } : ticket));
    const ticket = model.find(scene.queue, uuid);
    if (ticket === undefined || !isLive(ticket)) return NONE;
    scene.queue = { ...scene.queue, tickets };
    await backdate(scene.database, uuid);
    return NONE;
  },
  async release(scene) {
    const uuid = some(scene);
    if (uuid === undefined) return NONE;
    const real = releaseTicket(scene.database, uuid).then((change) => change?.moved ?? []);
    return stepped(scene, model.release(scene.queue, uuid), real);
  },
  async renew(scene) {
    const uuid = some(scene);
    if (uuid === undefined) return NONE;
    const isDue = scene.dice.chance(0.2);
    const real = renewTicket(scene.database, uuid, isDue ? LONG_AGO : LATER).then((change) => change?.moved ?? []);
    return stepped(scene, model.renew(scene.queue, uuid, isDue), real);
  },
  async delete(scene) {
    const uuid = some(scene);
    if (uuid === undefined) return NONE;
    return stepped(scene, model.remove(scene.queue, uuid), deleteTicket(scene.database, uuid));
  },
  async expire(scene) {
    return stepped(scene, model.expire(scene.queue), expireTickets(scene.database, MOST));
  },
  async deleteAll(scene) {
    if (!scene.dice.chance(0.15)) return NONE;
    const { database, place } = scene;
    const last = await readLastQueue(database);
    const real = deleteQueues(database, place.serverUuid, { last, maxQueues: 10 });
    return stepped(
      scene,
      model.removeAll(scene.queue),
      real.then((deleted) => deleted.moved),
    );
  },
  async repair(scene) {
    const real = repairQueues(scene.database, MOST).then((repaired) => repaired.moved);
    return stepped(scene, model.repair(scene.queue), real);
  },
};

t.setTimeout(COMPUTING_TIMEOUT_MS);

t.test("the model of the waitlist gives the same tickets as the waitlist's functions", async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  await checkConformance<Scene>(t, {
    seed: 20_260_103,
    sequences: 60,
    steps: 70,
    begin: async (dice) => {
      // A round of expiry covers all existing queues.
      await database.query('truncate cnapi_waitlist_queues, cnapi_waitlist_tickets cascade');
      return { database, dice, place: newQueue({ serverUuid: randomUUID() }), queue: model.newQueue() };
    },
    operations,
    often: ['create'],
    rows: async (scene) => ({ real: await stored(scene), model: expected(scene) }),
  });
});

async function stored({ database, place }: Scene): Promise<unknown> {
  const { rows } = await database.query(
    `select uuid, place, status, expires_at <= cnapi_now() as "isDue" from cnapi_waitlist_tickets
       where server_uuid = $1::text order by uuid`,
    [place.serverUuid],
  );
  const queues = await database.query<{ last_place: number }>(
    'select last_place from cnapi_waitlist_queues where server_uuid = $1::text',
    [place.serverUuid],
  );
  return { tickets: rows.map((row) => ({ ...row })), lastPlace: queues.rows[0]?.last_place ?? 0 };
}

function expected({ queue }: Scene): unknown {
  const tickets = queue.tickets.map(({ uuid, place, status, isDue }) => ({ uuid, place, status, isDue }));
  return { tickets: tickets.sort((one, other) => (one.uuid < other.uuid ? -1 : 1)), lastPlace: queue.lastPlace };
}
