/** What the roster deletes of its past: runs that ended, and old entries of the status history. */
import { randomUUID } from 'node:crypto';
import t, { type Test } from 'tap';
import {
  declareLapsed,
  deleteEndedRuns,
  endRun,
  insertRun,
} from '../../../lib/control/roster/membership/instance-store.ts';
import { acceptSession, recordLosses } from '../../../lib/control/roster/status/roster-store.ts';
import { deleteOldStatusHistory, readStatusHistory } from '../../../lib/control/roster/status/status-history.ts';
import { matchLists } from '../../support/match-lists.ts';
import { migrationsOf } from '../../support/migrations-of.ts';
import { freshDatabase } from '../../support/postgres.ts';

async function start(t: Test) {
  const { database, open } = await freshDatabase(t, { migrations: migrationsOf('moray', 'roster') });
  const newRun = async () => {
    const writer = { cnapiUuid: randomUUID(), run: randomUUID() };
    const identity = { cnapiUuid: writer.cnapiUuid, url: '', host: '127.0.0.1', port: 1, pid: 1, version: '0' };
    await insertRun(database, writer.run, identity, null);
    return writer;
  };
  const newHello = () => ({
    serverUuid: randomUUID(),
    incarnation: randomUUID(),
    conn: 1,
    journalId: randomUUID(),
    epoch: 0,
  });
  /** Runs `body` while another transaction holds the row that `text` selects. */
  const whileLocked = (text: string, values: unknown[], body: () => Promise<void>) =>
    open({ maxConnections: 1 }).transaction(async (holder) => {
      await holder.query(`${text} for update`, values);
      await body();
    });
  return { database, newRun, newHello, whileLocked };
}

t.test('a run says how and when it ended', async (t) => {
  const { database, newRun } = await start(t);
  const [live, stopped, lapsed] = [await newRun(), await newRun(), await newRun()];
  await endRun(database, stopped.run);
  await declareLapsed(database, [{ run: lapsed.run, beat: 0 }]);
  await endRun(database, lapsed.run);
  const { rows } = await database.query<{ run: string }>(
    `select run, state, end_reason, ended_at > cnapi_now() - interval '1 minute' as is_dated from cnapi_instances`,
  );
  const endOf = ({ run }: { run: string }) => rows.find((one) => one.run === run);
  matchLists(t, [live, stopped, lapsed].map(endOf), [
    { state: 'live', end_reason: null, is_dated: null },
    { state: 'dead', end_reason: 'stopped', is_dated: true },
    { state: 'dead', end_reason: 'lapsed', is_dated: true },
  ]);
});

t.test('a run that ended more than a day ago is deleted unless a running server still names it', async (t) => {
  const { database, newRun, newHello, whileLocked } = await start(t);
  const [live, recent, old, named, left] = [
    await newRun(),
    await newRun(),
    await newRun(),
    await newRun(),
    await newRun(),
  ];
  await acceptSession(database, named, newHello(), null);
  const lost = newHello();
  await acceptSession(database, left, lost, null);
  await recordLosses(database, left.cnapiUuid, [{ ...lost, run: left.run, epoch: 1, reason: 'closed' }]);
  for (const { run } of [recent, old, named, left]) await endRun(database, run);
  await database.query(
    `update cnapi_instances set ended_at = ended_at - interval '25 hours' where run = any ($1::uuid[])`,
    [[old, named, left].map(({ run }) => run)],
  );
  await whileLocked('select 1 from cnapi_instances where run = $1::uuid', [left.run], async () => {
    t.equal(await deleteEndedRuns(database), 1, 'it does not wait for a locked row');
  });
  t.equal(await deleteEndedRuns(database), 1);
  const { rows } = await database.query<{ run: string }>('select run from cnapi_instances');
  t.same(rows.map(({ run }) => run).sort(), [live, recent, named].map(({ run }) => run).sort());
});

t.test('old entries of the status history are deleted in batches, but never the newest of a server', async (t) => {
  const { database, newRun, newHello, whileLocked } = await start(t);
  const writer = await newRun();
  const [changing, quiet] = [newHello(), newHello()];
  for (const hello of [changing, quiet]) await acceptSession(database, writer, hello, null);
  const lose = () =>
    recordLosses(database, writer.cnapiUuid, [{ ...changing, run: writer.run, epoch: 1, reason: 'closed' }]);
  await lose();
  await database.query(`update cnapi_status_history set since = since - interval '31 days'`);
  t.equal(await deleteOldStatusHistory(database, 32, 10), 0, 'none is that old');
  await acceptSession(database, writer, { ...changing, conn: 2 }, null);
  t.equal(await deleteOldStatusHistory(database, 30, 1), 1);
  const historyOf = (serverUuid: string) => readStatusHistory(database, serverUuid, { limit: 10, offset: 0 });
  matchLists(t, await historyOf(changing.serverUuid), [{ status: 'running' }, { status: 'unknown' }]);
  await whileLocked(
    'select 1 from cnapi_status_history where since < cnapi_now() - $1::interval',
    ['30 days'],
    async () => {
      t.equal(await deleteOldStatusHistory(database, 30, 10), 0, 'it does not wait for a locked row');
    },
  );
  t.equal(await deleteOldStatusHistory(database, 30, 10), 1);
  t.equal(await deleteOldStatusHistory(database, 30, 10), 0);
  t.same(
    [await historyOf(changing.serverUuid), await historyOf(quiet.serverUuid)].map(({ length }) => length),
    [1, 1],
  );
});
