/**
 * An instance refuses a database that was given another text under the same number, so a migration
 * changes only on purpose: never after it was released, and before the first release together with
 * its digest in `landed-migrations.json` (docs/decisions/schema-is-one-baseline.md).
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
      `migration ${key} has changed: if a release has it, restore its text and add a new number; else its digest is ${digests[key]}`,
    );
  for (const [key, digest] of Object.entries(digests))
    t.ok(key in landed, `migration ${key} is new: add "${key}": "${digest}" to landed-migrations.json`);
});

t.test('before the first release, each function of the database has one text', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const texts = migrations.flatMap(({ sql }) => [...sql.matchAll(/^create (?:or replace )?function (\w+)/gm)]);
  const names = texts.map(([, name = '']) => name);
  t.same(
    names.filter((name, index) => names.indexOf(name) !== index),
    [],
    'a function that changes is rewritten in its file',
  );
  const { rows } = await database.query<{ name: string }>(
    "select proname as name from pg_proc where proname like 'cnapi_%' and pronamespace = 'public'::regnamespace",
  );
  t.same(names.toSorted(), [...new Set(rows.map(({ name }) => name))].toSorted(), 'and the database has all of them');
});
