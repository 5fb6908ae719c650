/**
 * A query that may not use sequential scans and has no other way has an enormous estimated cost.
 * Postgres before 18 then compiles it each time it runs, which takes longer than the query.
 */
import t from 'tap';
import { migrations } from '../../lib/control/subsystem-list.ts';
import { freshDatabase } from '../support/postgres.ts';

t.test('functions that use no sequential scans are not compiled', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const { rows } = await database.query<{ name: string; settings: string[] }>(
    `select proname as name, proconfig as settings from pg_proc where 'enable_seqscan=off' = any (proconfig) order by proname`,
  );
  t.ok(rows.some(({ name }) => name === 'cnapi_claim_for_sessions'));
  for (const { name, settings } of rows) t.ok(settings.includes('jit=off'), name);
});
