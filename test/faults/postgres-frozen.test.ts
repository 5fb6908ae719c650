import { setTimeout as sleep } from 'node:timers/promises';
import { FULL_START_GRACE, faultTest } from '../support/fault-test.ts';

// A wait whose task ended just before the freeze cannot read that before the thaw.
const frozen = { config: FULL_START_GRACE, waitSlackMs: 30_000 };

faultTest('Postgres frozen for 20 s and thawed', frozen, async ({ zone }) => {
  zone.postgres.freeze();
  await sleep(20_000);
  zone.postgres.thaw();
  await sleep(15_000);
});

/** Eight seconds without the database, and then at most a slow poll. */
const asBus = { bus: 'postgres', config: FULL_START_GRACE, waitSlackMs: 14_000 } as const;

faultTest('Postgres restarted and gone for a while, with itself as the bus', asBus, async ({ zone }) => {
  await zone.postgres.restart();
  await sleep(5_000);
  await zone.postgres.stop();
  await sleep(8_000);
  await zone.postgres.start();
  await sleep(8_000);
});
