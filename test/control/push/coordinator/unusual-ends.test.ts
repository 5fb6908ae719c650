/** What agents say about the ends of their commands, on a real Postgres. */
import t from 'tap';
import { advanceJob } from '../../../../lib/control/push/coordinator/coordinator-store.ts';
import { toEnd } from '../../../../lib/control/tasks/reports/report.ts';
import { recordReports } from '../../../../lib/control/tasks/reports/report-store.ts';
import { claimedJob, nodeStates, seatedDatabase, startAll } from '../job-rows.ts';

for (const [name, message] of [
  ['a NUL', 'a\0b'],
  ['half of a surrogate pair', 'half \ud800'],
]) {
  t.test(`an error with ${name} does not stop the job of its node`, async (t) => {
    const { database, run, seats } = await seatedDatabase(t, 2);
    const duty = await claimedJob(database, run, { seats });
    await startAll(database, duty, seats);
    const { rows } = await database.query<{ id: string; server_uuid: string; attempt: number }>(
      'select id, server_uuid, attempt from cnapi_tasks',
    );
    const ends = rows.map(({ id, server_uuid: serverUuid, attempt }) => {
      const error = { code: 'SpawnFailed', message: message ?? '' };
      const report = toEnd({ type: 'task_end', id, attempt, outcome: 'failure', error, reportedAt: 'then' });
      return { subject: { id, serverUuid, attempt }, report };
    });
    await recordReports(database, ends);
    await t.resolves(advanceJob(database, duty));
    t.notOk(JSON.stringify(await nodeStates(database)).includes('ready'), 'the ends have settled the nodes');
  });
}
