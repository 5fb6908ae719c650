/**
 * Tasks under tickets: created only while the ticket is active, whatever happens to it at the same
 * moment (law 5). The tickets are the waitlist's own, changed by its own statements, on real
 * Postgres behind forced lock waits.
 */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import {
  IdempotencyConflictError,
  TicketNotActiveError,
  TicketOfAnotherServerError,
  TooManyTasksError,
} from '../../../../lib/control/tasks/store/task-errors.ts';
import { readTask } from '../../../../lib/control/tasks/store/task-store.ts';
import { createTaskUnderTicket, type TicketedCreation } from '../../../../lib/control/tasks/store/ticketed-store.ts';
import { deleteTicket, expireTickets, releaseTicket } from '../../../../lib/control/waitlist/ticket-store.ts';
import type { Database } from '../../../../lib/platform/postgres/database.ts';
import { type Leg, runBehindLock } from '../../../support/lock-waits.ts';
import { MemoryHub } from '../../../support/memory-bus.ts';
import { migrationsOf } from '../../../support/migrations-of.ts';
import { freshPglite } from '../../../support/pglite.ts';
import { freshDatabase } from '../../../support/postgres.ts';
import { addOne, backdate, newQueue, statusOf } from '../../waitlist/support/waitlist-database.ts';
import { startInstance } from '../support/fake-agents.ts';
import { newTask } from '../support/task-database.ts';

const migrations = migrationsOf('moray', 'roster', 'legacy', 'tasks', 'waitlist');

type Tap = { teardown(work: () => unknown): void };
const databases: [string, (t: Tap) => Promise<Database>][] = [
  ['Postgres', async (t) => (await freshDatabase(t, { migrations })).database],
  ['PGlite', (t) => freshPglite(t, { migrations })],
];

for (const [name, fresh] of databases) {
  t.test(`on ${name}`, async (t) => {
    const db = await fresh(t);
    const instance = await startInstance(t, { database: db, hub: new MemoryHub() });
    const serverUuid = randomUUID();
    const create = (ticketUuid: string, fields = {}) =>
      instance.tasks.create({ serverUuid, name: 'nop', params: {}, ticketUuid, ...fields });
    const ticketOf = (server: string) => addOne(db, newQueue({ serverUuid: server }));

    t.test('a task is created under an active ticket of its server or of the datacenter, and names it', async (t) => {
      for (const server of [serverUuid, 'default']) {
        const ticketUuid = await ticketOf(server);
        const { id } = await create(ticketUuid);
        t.equal((await instance.tasks.get(id)).ticket_uuid, ticketUuid, server);
        t.not((await create(ticketUuid)).id, id, 'any number of them');
      }
      const { id } = await instance.tasks.create({ serverUuid, name: 'nop', params: {} });
      t.equal((await instance.tasks.get(id)).ticket_uuid, null);
    });

    t.test('a task under any other ticket is refused, with advice', async (t) => {
      const queue = newQueue({ serverUuid });
      const first = await addOne(db, queue);
      const queued = await addOne(db, queue);
      const message = (text: RegExp) => ({ name: TicketNotActiveError.name, message: text });
      await t.rejects(create(queued), message(new RegExp(`Ticket ${queued} is queued: wait`)));
      await releaseTicket(db, first);
      await t.resolves(create(queued), 'the ticket becomes active');
      await t.rejects(create(first), message(/is finished: create another/));
      await backdate(db, queued);
      await expireTickets(db, 100);
      await t.rejects(create(queued), message(/is expired: create another/));
      await t.rejects(create(randomUUID()), message(/There is no ticket/));
      const elsewhere = await ticketOf(randomUUID());
      await t.rejects(create(elsewhere), TicketOfAnotherServerError);
      const { rows } = await db.query('select 1 from cnapi_tasks where ticket_uuid = any ($1::uuid[])', [
        [first, elsewhere],
      ]);
      t.same(rows, [], 'no row of it remains');
    });

    t.test(
      'a repeated key finds its task although its ticket ended, and with another ticket is a new request',
      async (t) => {
        const ticketUuid = await ticketOf(serverUuid);
        const request = { idempotencyKey: 'key' };
        const { id } = await create(ticketUuid, request);
        t.same(await create(ticketUuid, request), { id, created: false });
        await releaseTicket(db, ticketUuid);
        t.same(await create(ticketUuid, request), { id, created: false });
        await deleteTicket(db, ticketUuid);
        t.same(await create(ticketUuid, request), { id, created: false });
        await t.rejects(create(ticketUuid, { ...request, params: { sleep: 1 } }), IdempotencyConflictError);
        await t.rejects(create(await ticketOf(serverUuid), request), IdempotencyConflictError);
        await t.rejects(
          instance.tasks.create({ serverUuid, name: 'nop', params: {}, ...request }),
          IdempotencyConflictError,
        );
      },
    );

    t.test('a full queue refuses a task under a ticket too', async (t) => {
      const crowded = randomUUID();
      const ticketUuid = await ticketOf(crowded);
      await db.query(
        `insert into cnapi_tasks (id, server_uuid, name, params, timeout_ms, idempotent, request_hash, created_at, queued_at)
           select gen_random_uuid(), $1::uuid, 'nop', '{}', 1, false, 'h', cnapi_now(), cnapi_now()
             from generate_series(1, 10000)`,
        [crowded],
      );
      await t.rejects(
        instance.tasks.create({ serverUuid: crowded, name: 'nop', params: {}, ticketUuid }),
        TooManyTasksError,
      );
    });
  });
}

t.test('ticket changes and task creation in both orders', async (t) => {
  const { url, open } = await freshDatabase(t, { migrations });
  const db = open({ maxConnections: 10 });
  const leg = <Result>(name: string, run: () => Promise<Result>): Leg<Result> => ({ name, run });
  const lockTicket = (uuid: string) => `select 1 from cnapi_waitlist_tickets where uuid = '${uuid}' for update`;
  const creating = (ticketUuid: string, serverUuid: string) =>
    leg<TicketedCreation>('create', () => createTaskUnderTicket(db, newTask(serverUuid, { ticketUuid })));
  const made = async (creation: TicketedCreation) =>
    creation.kind === 'made' ? (await readTask(db, creation.id))?.ticket_uuid : undefined;

  /** What ends a ticket after waiting for its lock, and the ticket's status then. */
  const ends: [string, string, (uuid: string) => Promise<unknown>][] = [
    ['released', 'finished', (uuid) => releaseTicket(db, uuid)],
    ['deleted', 'gone', (uuid) => deleteTicket(db, uuid)],
  ];
  for (const [name, status, end] of ends) {
    t.test(`a ticket that is ${name} before its task makes no task`, async (t) => {
      const { queue, uuid } = await ticket();
      const ending = leg('end', () => end(uuid));
      const legs = [ending, creating(uuid, queue.serverUuid)] as [Leg<unknown>, Leg<TicketedCreation>];
      const [, creation] = await runBehindLock<[unknown, TicketedCreation]>(url, lockTicket(uuid), legs);
      t.match(creation, { kind: 'refused', ticket: status === 'gone' ? undefined : { status } });
      t.equal(await statusOf(db, uuid), status);
    });

    t.test(`a task that comes before its ticket is ${name} is created`, async (t) => {
      const { queue, uuid } = await ticket();
      const ending = leg('end', () => end(uuid));
      const legs = [creating(uuid, queue.serverUuid), ending] as [Leg<TicketedCreation>, Leg<unknown>];
      const [creation] = await runBehindLock<[TicketedCreation, unknown]>(url, lockTicket(uuid), legs);
      t.equal(await made(creation), uuid);
      t.equal(await statusOf(db, uuid), status);
    });
  }

  // An expiry does not wait for a locked ticket: it leaves it to the next expiry.
  t.test('a ticket that expires before its task makes no task', async (t) => {
    const { queue, uuid } = await ticket();
    const expireSql = 'select * from cnapi_expire_tickets(100)';
    const [creation] = await runBehindLock<[TicketedCreation]>(url, expireSql, [creating(uuid, queue.serverUuid)]);
    t.match(creation, { kind: 'refused', ticket: { status: 'expired' } });
    t.equal(await statusOf(db, uuid), 'expired');
  });

  t.test('a task that comes before its ticket expires is created, and the ticket expires after it', async (t) => {
    const { queue, uuid } = await ticket();
    const creation = await db.transaction(async (connection) => {
      const creation = await createTaskUnderTicket(connection, newTask(queue.serverUuid, { ticketUuid: uuid }));
      t.same(await expireTickets(db, 100), [], 'a locked ticket is left to the next expiry');
      return creation;
    });
    t.equal(await made(creation), uuid);
    t.same(await expireTickets(db, 100), [{ uuid, status: 'expired' }]);
    t.equal(await statusOf(db, uuid), 'expired');
  });

  t.test('a ticket that becomes active first allows the task', async (t) => {
    const { queue, uuid: first } = await ticket();
    const next = await addOne(db, queue);
    const releasing = leg('release', () => releaseTicket(db, first));
    const [, creation] = await runBehindLock<[unknown, TicketedCreation]>(url, lockTicket(next), [
      releasing,
      creating(next, queue.serverUuid),
    ]);
    t.equal(await made(creation), next);
  });

  t.test('of two requests with one key around a release, both get the task that was created', async (t) => {
    const { queue, uuid: ticketUuid } = await ticket();
    const instance = await startInstance(t, { database: db, hub: new MemoryHub() });
    const { serverUuid } = queue;
    const request = { serverUuid, name: 'nop' as const, params: {}, idempotencyKey: 'key', ticketUuid };
    const asking = leg('ask', () => instance.tasks.create(request));
    const [first, , again] = await runBehindLock<[{ id: string }, unknown, { id: string }]>(
      url,
      lockTicket(ticketUuid),
      [asking, leg('release', () => releaseTicket(db, ticketUuid)), asking],
    );
    t.equal(again.id, first.id);
    t.equal(await statusOf(db, ticketUuid), 'finished');
  });

  /** An active ticket that is due, so that an expiry takes it. */
  async function ticket() {
    const queue = newQueue();
    const uuid = await addOne(db, queue);
    await backdate(db, uuid);
    return { queue, uuid };
  }
});
