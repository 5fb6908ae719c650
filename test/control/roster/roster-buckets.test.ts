import { randomUUID } from 'node:crypto';
import t from 'tap';
import { insertRun, raiseBeat } from '../../../lib/control/roster/instance-store.ts';
import { instancesBucket, rosterAuthorityBucket } from '../../../lib/control/roster/roster-buckets.ts';
import { rosterMigrations } from '../../../lib/control/roster/roster-schema.ts';
import { acceptSession, recordLosses } from '../../../lib/control/roster/roster-store.ts';
import { BucketStore } from '../../../lib/platform/moray/bucket-store.ts';
import { parseFilter } from '../../../lib/platform/moray/filter-text.ts';
import { morayMigrations } from '../../../lib/platform/moray/moray-schema.ts';
import { freshDatabase } from '../../support/postgres.ts';

t.test("the roster's tables can be read through the bucket store like any bucket", async (t) => {
  const { database } = await freshDatabase(t, { migrations: [...morayMigrations, ...rosterMigrations] });
  const store = new BucketStore({ database });
  const [cnapiUuid, run, serverUuid] = [randomUUID(), randomUUID(), randomUUID()];
  const identity = { cnapiUuid, url: 'http://127.0.0.1:1', host: '127.0.0.1', port: 1, pid: 1, version: '0' };
  await insertRun(database, run, identity, null);
  await raiseBeat(database, run, 3);
  const hello = { serverUuid, incarnation: randomUUID(), conn: 1, journalId: randomUUID(), epoch: 0 };
  await acceptSession(database, { cnapiUuid, run }, hello, null);

  const held = await store.get(rosterAuthorityBucket, serverUuid);
  t.match(held, { key: serverUuid, value: { status: 'running', epoch: 1, run, conn: 1 } });
  await recordLosses(database, cnapiUuid, [{ serverUuid, run, epoch: 1, reason: 'closed' }]);
  const found = [];
  for await (const object of store.find(rosterAuthorityBucket, parseFilter('(&(status=unknown)(epoch>=1))')))
    found.push(object);
  t.equal(found.length, 1);
  t.not(found[0]?.etag, held.etag, 'each write changes the etag');
  t.match(await store.get(instancesBucket, run), { value: { beat: 1, agents: 3, state: 'live' } });
});
