/**
 * An applied migration never changes: an instance refuses a database that was given another text
 * under the same number. `landed-migrations.json` holds the digest of each migration of `main`.
 */
import { readFileSync } from 'node:fs';
import t from 'tap';
import { migrations } from '../../lib/control/subsystem-list.ts';
import { keyOf } from '../../lib/platform/postgres/migrations.ts';
import { freshDatabase } from '../support/postgres.ts';

const landed: Record<string, string> = JSON.parse(
  readFileSync(new URL('landed-migrations.json', import.meta.url), 'utf8'),
);

t.test('migrations that have landed are unchanged', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const { rows } = await database.query<{ subsystem: string; number: number; digest: string }>(
    'select subsystem, number, digest from cnapi_migrations order by subsystem, number',
  );
  const digests = Object.fromEntries(rows.map((row) => [keyOf(row), row.digest]));
  for (const [key, digest] of Object.entries(landed))
    t.equal(
      digests[key],
      digest,
      `migration ${key} has changed: restore its text, and change the schema by a new number`,
    );
  for (const [key, digest] of Object.entries(digests))
    t.ok(key in landed, `migration ${key} is new: add "${key}": "${digest}" to landed-migrations.json`);
});
