/** The same change of many tasks in one statement, as push jobs make it. */
import t from 'tap';
import { freshDatabase } from '../../support/postgres.ts';
import { claim, create, migrations, row, seat } from './support/task-database.ts';

t.test('a cancel ends queued tasks, says whether they may have run, and asks for the end of others', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const mine = await seat(database);
  const claimed = await create(database, mine.serverUuid);
  await claim(database, mine);
  const [queued, uncertain] = [await create(database, mine.serverUuid), await create(database, mine.serverUuid)];
  await database.query('update cnapi_tasks set uncertain = true where id = $1::uuid', [uncertain]);
  await database.query('select cnapi_cancel_tasks($1::uuid[], $2::json, $3::json)', [
    [claimed, queued, uncertain],
    '{"code":"Stopped","message":""}',
    '{"code":"Unknown","message":""}',
  ]);
  t.match(await row(database, queued), { state: 'ended', outcome: 'failure', error: { code: 'Stopped' } });
  t.match(await row(database, uncertain), { state: 'ended', outcome: 'failure', error: { code: 'Unknown' } });
  t.match(await row(database, claimed), {
    state: 'claimed',
    outcome: null,
    error: null,
    cancel_requested_at: Date,
  });
});
