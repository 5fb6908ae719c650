/**
 * The statements of a ticket's life, for `pgbench`: the product's own statements. A ticket joins a
 * queue that has a holder; the holder is looked up, as by a wait, and released, which hands the
 * queue over.
 */
import { addTicket, readTicketStatuses, releaseTicket } from '../../lib/control/waitlist/ticket-store.ts';
import { type Statement, statementsOf, toScript } from './pgbench.ts';

const TICKET = '33333333-3333-4333-8333-333333333333';
const QUEUE = 'queue';
const SCOPE = 'bench';

const newTicket = {
  uuid: TICKET,
  serverUuid: 'default',
  scope: SCOPE,
  id: QUEUE,
  action: undefined,
  extra: {},
  reqId: TICKET,
  expiry: { inMs: 3_600_000 },
};

/**
 * Each client hands over its own queues, each time a random one of `queues`. A queue is handed over
 * only when it is `depth` tickets deep, so it keeps that depth after the first rounds.
 */
export async function ticketLifeScript({ queues, depth }: { queues: number; depth: number }): Promise<string> {
  const [create] = await statementsOf(
    (database) => addTicket(database, newTicket, { maxWaiting: 10_000, maxOpen: 20_000 }),
    [{ outcome: 'added' }],
  );
  const [read] = await statementsOf((database) => readTicketStatuses(database, [TICKET]));
  const [release] = await statementsOf((database) => releaseTicket(database, TICKET));
  const id = `(:client_id || '-' || :queue)`;
  const made = new Map([
    [TICKET, 'md5(:ticket::text)::uuid'],
    [QUEUE, id],
  ]);
  const held = new Map([[TICKET, ':holder::uuid']]);
  const holder =
    `select uuid as holder, last_place - place >= ${depth} as is_deep from cnapi_waitlist_tickets t ` +
    `join cnapi_waitlist_queues q on q.key = t.queue where q.id = ${id} and t.status = 'active' \\gset`;
  return [
    `\\set queue random(1, ${queues})`,
    '\\set ticket random(1, 9000000000000000000)',
    written(create, made),
    holder,
    '\\if :is_deep',
    written(read, held),
    written(release, held),
    '\\endif',
    '',
  ].join('\n');
}

function written(statement: Statement | undefined, expressions: ReadonlyMap<unknown, string>): string {
  if (statement === undefined) throw new Error('the store sends no statement any more');
  return toScript(statement, expressions).trimEnd();
}
