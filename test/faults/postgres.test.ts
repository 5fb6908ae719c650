import { setTimeout as sleep } from 'node:timers/promises';
import { FULL_START_GRACE, faultTest } from '../support/fault-test.ts';

// Flushed to disk, as in production, so that committed data survives a crash. A wait whose task
// ended just before the database stopped may read that half a minute later, at a slow poll.
const plan = { postgres: { fast: false }, config: FULL_START_GRACE, waitSlackMs: 36_000 };

faultTest('nothing is lost when Postgres is restarted, crashes, or is stopped for 30 s', plan, async ({ zone }) => {
  await zone.postgres.restart();
  await sleep(8_000);
  await zone.postgres.crash();
  await zone.postgres.start();
  await sleep(8_000);
  await zone.postgres.stop();
  await sleep(30_000);
  await zone.postgres.start();
  await sleep(12_000);
});
