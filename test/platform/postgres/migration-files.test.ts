import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import t from 'tap';
import { readMigrations } from '../../../lib/platform/postgres/migration-files.ts';
import type { Teardown } from '../../support/postgres.ts';

function folderOf(t: Teardown, files: Record<string, string>): string {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'cnapi-migrations-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  mkdirSync(path.join(folder, 'migrations'));
  for (const [name, text] of Object.entries(files)) writeFileSync(path.join(folder, 'migrations', name), text);
  return folder;
}

t.test('the files of a folder are the steps of its subsystem', async (t) => {
  const folder = folderOf(t, { '010-late-rows.sql': 'select 2;', '001-tables.sql': 'select 1;' });
  t.same(readMigrations('nouns', folder), [
    { subsystem: 'nouns', number: 1, name: 'tables', sql: 'select 1;' },
    { subsystem: 'nouns', number: 10, name: 'late-rows', sql: 'select 2;' },
  ]);
});

t.test('a file that would not be applied is refused', async (t) => {
  for (const name of ['tables.sql', '1-tables.sql', '001_tables.sql', '001-tables.sql~', '001-Tables.sql'])
    t.throws(() => readMigrations('nouns', folderOf(t, { [name]: '' })), {
      code: 'MigrationError',
      message: `migrations of nouns: '${name}' is not named like 001-tables.sql`,
    });
  t.throws(() => readMigrations('nouns', path.join(os.tmpdir(), 'cnapi-no-such-folder')), { code: 'ENOENT' });
});
