/**
 * The record of what agents were told: until when the last one of them stays away, of all instances,
 * live or dead.
 */
import { randomUUID } from 'node:crypto';
import t, { type Test } from 'tap';
import {
  declareLapsed,
  endRun,
  incrementBeat,
  insertRun,
  readLatestReturn,
} from '../../../../lib/control/roster/membership/instance-store.ts';
import { MAX_RETURN_MS } from '../../../../lib/protocol/limits.ts';
import { migrationsOf } from '../../../support/migrations-of.ts';
import { freshDatabase } from '../../../support/postgres.ts';

const GRACE_MS = 5_000;

async function start(t: Test) {
  const { database } = await freshDatabase(t, { migrations: migrationsOf('moray', 'roster') });
  const newRun = async () => {
    const run = randomUUID();
    const identity = { cnapiUuid: randomUUID(), url: '', host: '127.0.0.1', port: 1, pid: 1, version: '0' };
    await insertRun(database, run, identity, null);
    return run;
  };
  /** In how many seconds the last agent is to return, as the database says. */
  const latestReturnInS = async () => {
    const [last, { rows }] = [
      await readLatestReturn(database, GRACE_MS),
      await database.query<{ now: Date }>('select cnapi_now() as now'),
    ];
    return last && Math.round((last.getTime() - (rows[0] as { now: Date }).now.getTime()) / 1_000);
  };
  return { database, newRun, latestReturnInS };
}

t.test('only an instance that told an agent to return has a last return time', async (t) => {
  const { database, newRun, latestReturnInS } = await start(t);
  const run = await newRun();
  await incrementBeat(database, run, { agents: 3, admission: 'closed' });
  t.equal(await latestReturnInS(), undefined, 'it is full and deferred nobody');
  await incrementBeat(database, run, { agents: 3, admission: 'paced', latestReturnInMs: 60_000 });
  await incrementBeat(database, run, { agents: 3, admission: 'open' });
  t.equal(await latestReturnInS(), 60, 'a beat without one keeps it, and it does not depend on the admission');
});

t.test('the last return time of a dead instance still counts', async (t) => {
  const { database, newRun, latestReturnInS } = await start(t);
  const [lapsed, stopped] = [await newRun(), await newRun()];
  await incrementBeat(database, lapsed, { agents: 3, latestReturnInMs: 30_000 });
  t.same(await declareLapsed(database, [{ run: lapsed, beat: 1 }]), [lapsed]);
  t.equal(await latestReturnInS(), 30);
  await endRun(database, stopped, 90_000);
  t.equal(await latestReturnInS(), 90, 'one that stops records those that it told since its last beat');
  await endRun(database, stopped, 10_000);
  await incrementBeat(database, lapsed, { agents: 3, latestReturnInMs: 120_000 });
  t.equal(await latestReturnInS(), 90, 'a dead run records nothing more');
});

t.test('a last return time counts until the grace after it is over', async (t) => {
  const { database, newRun, latestReturnInS } = await start(t);
  const run = await newRun();
  await incrementBeat(database, run, { agents: 0, latestReturnInMs: 1_000 - GRACE_MS });
  t.equal(await latestReturnInS(), (1_000 - GRACE_MS) / 1_000);
  await incrementBeat(database, run, { agents: 0, latestReturnInMs: -1 - GRACE_MS });
  t.equal(await latestReturnInS(), undefined);
});

t.test('a last return time from before the clock of the database was set back does not count', async (t) => {
  const { database, newRun, latestReturnInS } = await start(t);
  const run = await newRun();
  await incrementBeat(database, run, { agents: 0, latestReturnInMs: MAX_RETURN_MS + 60_000 });
  t.equal(await latestReturnInS(), undefined);
});
