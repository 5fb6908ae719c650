/** A request to create a ticket can be repeated on any instance with the same Idempotency-Key. */
import t from 'tap';
import { freshZone } from '../../../support/apps.ts';
import { matchLists } from '../../../support/match-lists.ts';
import { call } from '../../http/support.ts';

const TICKETS = '/servers/default/tickets';

t.test('a repeated create with the same Idempotency-Key returns the same ticket', async (t) => {
  const zone = await freshZone(t);
  const { url: a } = await zone.startApp();
  const { url: b } = await zone.startApp();
  const ticket = { scope: 'vm', id: 'keyed', expires_in: 60 };
  const key = { 'idempotency-key': 'once' };
  const first = await call(a, 'POST', TICKETS, ticket, key);
  t.equal(first.status, 202);
  t.equal((await call(b, 'POST', TICKETS, ticket, key)).body.uuid, first.body.uuid);
  t.match(await call(b, 'POST', TICKETS, { ...ticket, expires_in: 61 }, key), {
    status: 409,
    body: { code: 'IdempotencyConflict' },
  });
  matchLists(t, await call(a, 'POST', TICKETS, ticket, { 'idempotency-key': 'not one key' }), {
    status: 400,
    body: { code: 'InvalidParameters', errors: [{ field: 'Idempotency-Key' }] },
  });
});
