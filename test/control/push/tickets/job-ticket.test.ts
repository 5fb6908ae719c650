/** The ticket of a job, with a waitlist and a clock that do as the test says. */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import { PushJobTicket, type PushJobTicketDeps } from '../../../../lib/control/push/tickets/job-ticket.ts';
import type { PushTicketRow } from '../../../../lib/control/push/tickets/ticket-store.ts';
import type { TicketRequest, TicketStatus } from '../../../../lib/control/waitlist/ticket.ts';
import { TicketEndedError, TooManyTicketsError } from '../../../../lib/control/waitlist/ticket-errors.ts';
import { DatabaseBusyError } from '../../../../lib/platform/errors.ts';
import { ManualClock } from '../../../support/manual-clock.ts';

const EXPIRES_IN_MS = 60_000;

/** One job; `holder()`: an instance that carries it out. */
function jobWithTicket() {
  const clock = new ManualClock();
  const duty = { id: randomUUID(), kind: 'push-job', run: randomUUID(), generation: 1, failures: 0 };
  const row: PushTicketRow = {
    ...{
      serverUuid: 'default',
      scope: 'rollout',
      id: 'one',
      expiresInSeconds: EXPIRES_IN_MS / 1_000,
      timeoutMs: 1_000,
    },
    ...{ actor: 'alice', ticketId: undefined },
  };
  const world = {
    status: 'queued' as TicketStatus,
    isFull: false,
    isLocked: false,
    losesRecord: false,
    keys: new Map<string, string>(),
  };
  const calls: string[] = [];
  const said = <Result>(call: string, result: Result) => {
    calls.push(call);
    return result;
  };
  const ticket = (uuid: string) => ({ uuid, status: world.status }) as never;
  const waitlist: PushJobTicketDeps['waitlist'] = {
    async create({ idempotencyKey = '' }: TicketRequest) {
      calls.push('create');
      if (world.isFull) throw new TooManyTicketsError('This queue', 1);
      const uuid = world.keys.get(idempotencyKey) ?? randomUUID();
      world.keys.set(idempotencyKey, uuid);
      return { uuid, queue: [] };
    },
    get: async (uuid) => ticket(uuid),
    async renew(uuid) {
      calls.push('renew');
      if (world.isLocked) throw new DatabaseBusyError('locked', new Error('lock timeout'));
      if (world.status === 'expired') throw new TicketEndedError(uuid, 'expired');
      return ticket(uuid);
    },
    release: async (uuid) => said(`release ${[...world.keys.values()].indexOf(uuid)}`, undefined),
    wait: () => new Promise(() => {}),
  };
  const database = {
    async query(text: string, values: readonly unknown[] = []) {
      calls.push(/cnapi_\w+/.exec(text)?.[0] ?? text);
      if (text.includes('record_push_ticket') && world.losesRecord) throw new Error('the instance died');
      if (text.includes('record_push_ticket')) row.ticketId = String(values.at(-1));
      return { rows: [{ held: true }], rowCount: 1 };
    },
  } as unknown as PushJobTicketDeps['database'];
  const holder = () => new PushJobTicket({ database, clock, waitlist }, duty, { ...row });
  const look = (of: PushJobTicket) => of.ensureHeld(() => {}, new AbortController().signal);
  const count = (call: string) => calls.filter((one) => one === call).length;
  return { clock, world, calls, holder, look, count };
}

t.test('it is taken once, and renewed each time that half of its time has passed', async (t) => {
  const { clock, world, count, holder, look } = jobWithTicket();
  const ticket = holder();
  t.equal(await look(ticket), 'queued');
  const renewed = count('renew');
  world.status = 'active';
  for (let second = 0; second < 120; second += 1) {
    t.equal(await look(ticket), 'active');
    await clock.advance(1_000);
  }
  t.equal(count('create'), 1);
  t.equal(count('renew') - renewed, 3);
});

t.test('while its queue is locked the job goes on, and it is renewed afterwards', async (t) => {
  const { clock, world, count, holder, look } = jobWithTicket();
  const ticket = holder();
  world.status = 'active';
  t.equal(await look(ticket), 'active');
  await clock.advance(EXPIRES_IN_MS / 2);
  world.isLocked = true;
  const renewed = count('renew');
  t.equal(await look(ticket), 'queued', 'unknown: nothing begins that needs it');
  t.equal(await look(ticket), 'active', 'it is only read for a while');
  world.isLocked = false;
  await clock.advance(2_000);
  t.equal(await look(ticket), 'active');
  t.equal(count('renew') - renewed, 2);
});

t.test('an instance that takes over renews it at once, because nobody knows when that was done', async (t) => {
  const { count, holder, look } = jobWithTicket();
  await look(holder());
  const before = count('renew');
  await look(holder());
  t.equal(count('create'), 1);
  t.equal(count('renew'), before + 1);
});

t.test('an instance that dies before it notes the ticket leaves none behind', async (t) => {
  const { world, calls, holder, look } = jobWithTicket();
  world.losesRecord = true;
  await t.rejects(look(holder()), /died/);
  world.losesRecord = false;
  await holder().release();
  t.equal(world.keys.size, 1, 'its key finds the ticket that was taken');
  t.same(calls.slice(-2), ['release 0', 'cnapi_forget_push_ticket']);
});

t.test('it is lost once it has ended, whatever is read later', async (t) => {
  const { clock, world, holder, look } = jobWithTicket();
  const ticket = holder();
  await look(ticket);
  world.status = 'expired';
  await clock.advance(EXPIRES_IN_MS);
  t.equal(await look(ticket), 'lost');
  world.status = 'active';
  t.equal(await look(ticket), 'lost');
});

t.test('while the queue is full it is asked for again', async (t) => {
  const { count, world, holder, look } = jobWithTicket();
  const ticket = holder();
  world.isFull = true;
  t.equal(await look(ticket), 'queued');
  world.isFull = false;
  world.status = 'active';
  t.equal(await look(ticket), 'active');
  t.equal(count('create'), 2);
});
