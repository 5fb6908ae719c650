/**
 * Reads a subsystem's migrations from its folder `migrations`, once, when its module is loaded. A
 * file `006-settle-inventories.sql` is step 6, named `settle-inventories`.
 */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { type Migration, MigrationError } from './migrations.ts';

const FILE = /^(\d{3})-([a-z0-9]+(?:-[a-z0-9]+)*)\.sql$/;

/**
 * `folder` is that of the module which calls. @throws MigrationError when a file has another name;
 * the system's error when there is no folder
 */
export function readMigrations(subsystem: string, folder: string): readonly Migration[] {
  const files = readdirSync(path.join(folder, 'migrations')).sort();
  return files.map((file) => {
    const [, number, name] = FILE.exec(file) ?? [];
    if (number === undefined || name === undefined)
      throw new MigrationError(`migrations of ${subsystem}: '${file}' is not named like 001-tables.sql`);
    const sql = readFileSync(path.join(folder, 'migrations', file), 'utf8');
    return { subsystem, number: Number(number), name, sql };
  });
}
