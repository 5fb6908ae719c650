import { setTimeout as sleep } from 'node:timers/promises';
import { FULL_START_GRACE, faultTest } from '../support/fault-test.ts';

// A wait whose task ended just before the freeze cannot read that before the thaw.
const frozen = { config: FULL_START_GRACE, waitSlackMs: 30_000 };

faultTest('nothing is lost when Postgres is frozen for 20 s', frozen, async ({ zone }) => {
  zone.postgres.freeze();
  await sleep(20_000);
  zone.postgres.thaw();
  await sleep(15_000);
});

/** Eight seconds without the database, then at most one slow poll. */
const asBus = { bus: 'postgres', config: FULL_START_GRACE, waitSlackMs: 14_000 } as const;

faultTest(
  'nothing is lost when Postgres, also used as the bus, is restarted and stopped for a while',
  asBus,
  async ({ zone }) => {
    await zone.postgres.restart();
    await sleep(5_000);
    await zone.postgres.stop();
    await sleep(8_000);
    await zone.postgres.start();
    await sleep(8_000);
  },
);
