/**
 * What the rows of dead runs wait for: the latest time at which an instance, live or dead, told an
 * agent to return; and for how long after a run's end they wait at most.
 */
import { randomUUID } from 'node:crypto';
import t, { type Test } from 'tap';
import {
  declareLapsed,
  endRun,
  incrementBeat,
  insertRun,
  readAwaitedReturns,
} from '../../../../lib/control/roster/membership/instance-store.ts';
import { MAX_RETURN_MS } from '../../../../lib/protocol/limits.ts';
import { migrationsOf } from '../../../support/migrations-of.ts';
import { freshDatabase } from '../../../support/postgres.ts';

const GRACE_MS = 5_000;
const LIMIT_MS = MAX_RETURN_MS + GRACE_MS;

async function start(t: Test) {
  const { database } = await freshDatabase(t, { migrations: migrationsOf('moray', 'roster') });
  const newRun = async () => {
    const run = randomUUID();
    const identity = { cnapiUuid: randomUUID(), url: '', host: '127.0.0.1', port: 1, pid: 1, version: '0' };
    await insertRun(database, run, identity, null);
    return run;
  };
  /** A run that has ended. */
  const newEndedRun = async () => {
    const run = await newRun();
    await endRun(database, run);
    return run;
  };
  /** The first run observes; it started long ago. */
  const [observer, dead] = [await newRun(), await newEndedRun()];
  /** Sets a time of a run to some milliseconds ago. */
  const backdate = (run: string, column: 'started_at' | 'ended_at', agoMs: number) =>
    database.query(
      `update cnapi_instances set ${column} = cnapi_now() - $2::int * interval '1 ms' where run = $1::uuid`,
      [run, agoMs],
    );
  await backdate(observer, 'started_at', 3_600_000);
  const read = (...runs: string[]) => readAwaitedReturns(database, observer, runs, GRACE_MS);
  /** Seconds until the last agent returns, by the database's clock. */
  const latestReturnInS = async () => {
    const [awaited, { rows }] = [await read(dead), await database.query<{ now: Date }>('select cnapi_now() as now')];
    return awaited && Math.round((awaited.latestReturnAt.getTime() - (rows[0] as { now: Date }).now.getTime()) / 1_000);
  };
  return { database, observer, dead, newRun, newEndedRun, backdate, read, latestReturnInS };
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

t.test('the rows of a run wait for a limited time after its end, each run for itself', async (t) => {
  const { database, observer, dead, newRun, newEndedRun, backdate, read } = await start(t);
  const [old, ahead, live] = [await newEndedRun(), await newEndedRun(), await newRun()];
  await incrementBeat(database, observer, { agents: 0, latestReturnInMs: 60_000 });
  await backdate(old, 'ended_at', LIMIT_MS + 1);
  await backdate(ahead, 'ended_at', -60_000);
  await backdate(dead, 'ended_at', LIMIT_MS - 30_000);
  const awaited = await read(dead, old, ahead, live, randomUUID());
  t.same([...(awaited?.runs ?? [])], [dead], 'not the others: over, before the clock was set back, live, deleted');
  const inMs = awaited?.firstOverInMs ?? 0;
  t.ok(inMs > 20_000 && inMs <= 30_000, `the limit is reached in ${inMs} ms`);
  t.equal(await read(old), undefined);
});

t.test('the limit counts from the start of the observer if the run ended before', async (t) => {
  const { database, observer, dead, backdate, read } = await start(t);
  await incrementBeat(database, observer, { agents: 0, latestReturnInMs: 60_000 });
  await backdate(dead, 'ended_at', 600_000);
  t.equal(await read(dead), undefined);
  await backdate(observer, 'started_at', 20_000);
  t.same([...((await read(dead))?.runs ?? [])], [dead], 'all instances were stopped, so no agent could return');
});
