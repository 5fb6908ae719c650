import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import type { Queryable } from '../../lib/platform/postgres/database.ts';
import { complaints } from '../control/waitlist/support/waitlist-database.ts';
import { startZone } from '../support/fleet-harness.ts';
import { LockHolders } from '../support/lock-holders.ts';
import { FILE_TIMEOUT_MS, HANG_MS } from '../support/patience.ts';
import { noRedisServer } from '../support/redis.ts';

t.setTimeout(FILE_TIMEOUT_MS);

t.test(
  'whatever is killed or frozen, a lock has one holder at a time and continues',
  { skip: noRedisServer, timeout: FILE_TIMEOUT_MS },
  async (t) => {
    const zone = await startZone(t, { agents: 0, simulated: 0 });
    const queues = ['one', 'two', 'three'];
    const holders = new LockHolders({ urls: zone.instances.map(({ url }) => url), queues, callers: 12 });
    holders.start();
    /**
     * Waits until every lock was held again after the fault, within the expiry of a ticket whose
     * answer the fault lost.
     */
    const goesOn = async (after: string) => {
      const before = new Map(holders.held);
      const end = Date.now() + 45_000 + HANG_MS;
      const hasGoneOn = () => queues.every((queue) => (holders.held.get(queue) ?? 0) > (before.get(queue) ?? 0) + 1);
      while (!hasGoneOn() && Date.now() < end) await sleep(50);
      t.ok(hasGoneOn(), `the locks continue after ${after}`);
    };
    await goesOn('start');

    const [first, second] = zone.instances;
    await first?.program.kill();
    await goesOn('an instance was killed');
    first?.program.start();

    second?.program.freeze();
    await sleep(3_000);
    await goesOn('an instance froze');
    second?.program.thaw();

    await zone.redis.stop();
    await goesOn('Redis was killed');
    await zone.redis.restart();

    zone.postgres.freeze();
    await sleep(4_000);
    zone.postgres.thaw();
    await goesOn('Postgres froze');

    await zone.postgres.restart();
    await goesOn('Postgres was restarted');

    t.same(await holders.finish(), []);
    const query = async (text: string) => {
      const rows = await zone.sql(text);
      return { rows, rowCount: rows.length };
    };
    t.same(await complaints({ query } as Queryable), []);
    t.comment(`held ${JSON.stringify([...holders.held])} times`);
  },
);
