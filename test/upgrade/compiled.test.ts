/**
 * A query that may not use sequential scans and has no other way has an enormous estimated cost. Postgres
 * before 18 then compiles it each time it runs, which takes longer than the query.
 */
import t from 'tap';
import { migrations } from '../../lib/control/schema.ts';
import { freshDatabase } from '../support/postgres.ts';

t.test('functions that use no sequential scans are not compiled', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const { rows } = await database.query<{ name: string; settings: string[] }>(
    `select proname as name, proconfig as settings from pg_proc where 'enable_seqscan=off' = any (proconfig) order by proname`,
  );
  t.same(
    rows.map(({ name }) => name),
    [
      'cnapi_claim_for_sessions',
      'cnapi_end_push_rehab',
      'cnapi_feed_push_job',
      'cnapi_fold_legacy_heartbeats',
      'cnapi_number_events',
      'cnapi_repair_queues',
      'cnapi_store_push_votes',
      'cnapi_store_task_reports',
    ],
  );
  for (const { name, settings } of rows) t.ok(settings.includes('jit=off'), name);
});
