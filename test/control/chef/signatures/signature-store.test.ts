/** How long the signatures of changes are remembered, and when a change may be received again. */
import { randomBytes, randomUUID } from 'node:crypto';
import t from 'tap';
import {
  deleteOldSignatures,
  permitRepetition,
  rememberSignature,
} from '../../../../lib/control/chef/signatures/signature-store.ts';
import { migrations } from '../../../../lib/control/subsystem-list.ts';
import { freshDatabase } from '../../../support/postgres.ts';

t.test('signatures of requests', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const principal = randomUUID();
  const source = '192.0.2.1';
  t.beforeEach(() => database.query('delete from cnapi_request_signatures'));

  /** Remembers a signature as if it had been received so long ago. */
  const received = async (minutesAgo: number): Promise<Buffer> => {
    const digest = randomBytes(32);
    t.equal(await rememberSignature(database, { digest, source, principal }), 'new');
    await database.query(
      `update cnapi_request_signatures set received_at = received_at - $2::int * interval '1 min' where digest = $1`,
      [digest, minutesAgo],
    );
    return digest;
  };
  const isRemembered = async (digest: Buffer) =>
    (await rememberSignature(database, { digest, source, principal })) === 'replayed';

  t.test('they are forgotten after an hour, a limited number at once', async (t) => {
    const valid = await received(59);
    for (let count = 0; count < 3; count += 1) await received(61);
    t.equal(await deleteOldSignatures(database, 2), 2);
    t.equal(await deleteOldSignatures(database, 2), 1);
    t.equal(await deleteOldSignatures(database, 2), 0);
    t.ok(await isRemembered(valid));
  });

  t.test('they are forgotten without waiting for one that somebody else deletes', async (t) => {
    const digest = await received(61);
    const other = await received(61);
    await database.transaction(async (holder) => {
      await holder.query('select 1 from cnapi_request_signatures where digest = $1 for update', [digest]);
      t.equal(await deleteOldSignatures(database, 9), 1);
    });
    t.ok(await isRemembered(digest));
    t.notOk(await isRemembered(other));
  });

  t.test('only those of the last hour count towards the maximum of their sender', async (t) => {
    await received(61);
    await received(0);
    const remember = (sender: string) =>
      rememberSignature(database, { digest: randomBytes(32), source, principal: sender, limit: 2 });
    t.equal(await remember(principal), 'new');
    t.equal(await remember(principal), 'full');
    t.equal(await remember(randomUUID()), 'new', 'of another sender');
  });

  t.test('a change that was refused for now is received again once, from the same address only', async (t) => {
    const digest = await received(0);
    await permitRepetition(database, { digest, source });
    const again = (from: string) => rememberSignature(database, { digest, source: from, principal });
    t.equal(await again('192.0.2.2'), 'replayed');
    const both = await Promise.all([again(source), again(source)]);
    t.same(both.toSorted(), ['new', 'replayed']);
    t.equal(await again(source), 'replayed');
  });

  t.test('a permitted repetition needs no room, because it was counted before', async (t) => {
    const digest = await received(0);
    await permitRepetition(database, { digest, source });
    const remember = (one: Buffer) => rememberSignature(database, { digest: one, source, principal, limit: 1 });
    t.equal(await remember(randomBytes(32)), 'full');
    t.equal(await remember(digest), 'new');
  });

  t.test('it is received again as often as the clients of Chef repeat a request, and counts once', async (t) => {
    const digest = await received(0);
    const again = async () => {
      await permitRepetition(database, { digest, source });
      return rememberSignature(database, { digest, source, principal, limit: 2 });
    };
    for (let count = 0; count < 5; count += 1) t.equal(await again(), 'new');
    t.equal(await again(), 'replayed');
  });

  t.test('it is received again as long as the clients of Chef repeat a request', async (t) => {
    const permitted = async (minutesAgo: number) => {
      const digest = await received(minutesAgo);
      await permitRepetition(database, { digest, source });
      return digest;
    };
    t.notOk(await isRemembered(await permitted(2)));
    t.ok(await isRemembered(await permitted(3)));
  });
});
