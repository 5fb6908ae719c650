import t from 'tap';
import { Director } from '../../../lib/control/waitlist/director.ts';
import { listQueues, type QueueRow } from '../../../lib/control/waitlist/ticket-list-store.ts';
import { deleteQueues, readLastQueue, repairQueues } from '../../../lib/control/waitlist/ticket-store.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import { systemClock } from '../../../lib/platform/time/clock.ts';
import { MemoryHub } from '../../support/memory-bus.ts';
import { FILE_TIMEOUT_MS } from '../../support/patience.ts';
import { freshDatabase } from '../../support/postgres.ts';
import { until } from '../../support/until.ts';
import { memoryBus } from './support/instances.ts';
import { complaints, migrations } from './support/waitlist-database.ts';

const QUEUES = 10_000;
const STATEMENT_MS = 120_000;

t.setTimeout(FILE_TIMEOUT_MS);

t.test('ten thousand queues are held, listed, passed on, expired and deleted', async (t) => {
  const { open } = await freshDatabase(t, { migrations });
  // The test's own statements cover ten thousand queues each, those of the product only a few.
  const database = open({ statementTimeoutMs: STATEMENT_MS });
  const create = (expiresInMs: number) =>
    database.query(
      `select count(*) from generate_series(1, $1::int) as n cross join lateral cnapi_create_ticket(gen_random_uuid(),
         'default', 'vm', to_char(n, 'FM00000'), null, '{}', null, null, null, $2::bigint, null, 10)`,
      [QUEUES, expiresInMs],
    );
  const count = async (status: string) => {
    const { rows } = await database.query<{ count: number }>(
      'select count(*) from cnapi_waitlist_tickets where status = $1::text',
      [status],
    );
    return rows[0]?.count;
  };
  await create(3_600_000);
  await create(3_600_000);
  t.same([await count('active'), await count('queued')], [QUEUES, QUEUES]);

  const seen: QueueRow[] = [];
  for (let offset = 0; offset < QUEUES; offset += 1_000)
    seen.push(...(await listQueues(database, { limit: 1_000, offset })));
  const names = seen.map(({ id }) => id);
  t.same(names, names.toSorted(), 'the pages follow each other');
  t.equal(new Set(names).size, QUEUES);
  t.ok(seen.every(({ waiting, holder }) => waiting === 1 && holder !== null));

  await database.query(
    `select count(*) from (select uuid from cnapi_waitlist_tickets where status = 'active') as held
       cross join lateral cnapi_release_ticket(held.uuid)`,
  );
  t.same([await count('active'), await count('queued'), await count('finished')], [QUEUES, 0, QUEUES]);
  t.same(await repairQueues(database, 10), { queues: [], moved: [] });

  await create(3_600_000);
  await database.query(`update cnapi_waitlist_tickets set expires_at = cnapi_now() where status = 'active'`);
  const announced = new Set<string>();
  const director = new Director({
    database,
    bus: memoryBus(new MemoryHub()),
    clock: systemClock,
    log: silentLogger,
    announce: (moved) => {
      for (const { uuid } of moved) announced.add(uuid);
    },
  });
  t.teardown(() => director.stop());
  director.start();
  await until(() => director.expired === QUEUES, 'all due tickets to expire');
  await until(() => announced.size === 2 * QUEUES, 'all changed tickets to be announced');
  t.same([await count('active'), await count('queued'), await count('expired')], [QUEUES, 0, QUEUES]);
  t.same(await complaints(database), []);

  const last = await readLastQueue(database);
  while ((await deleteQueues(database, 'default', { last, maxQueues: 1_000 })).queues > 0);
  t.equal(await count('active'), 0);
  t.same(await listQueues(database, { limit: 10, offset: 0 }), []);
});
