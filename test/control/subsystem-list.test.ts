import { globSync } from 'node:fs';
import path from 'node:path';
import t from 'tap';
import { migrations, subsystems } from '../../lib/control/subsystem-list.ts';
import { matchLists } from '../support/match-lists.ts';

const LIB = path.join(import.meta.dirname, '../../lib');

t.test('the list has the subsystem of each folder', async (t) => {
  const found = globSync('control/*/subsystem.ts', { cwd: LIB }).sort();
  const defined = await Promise.all(found.map((file) => import(path.join(LIB, file))));
  const listed = new Set<unknown>(subsystems);
  const missing = found.filter((_, index) => !Object.values(defined[index]).some((one) => listed.has(one)));
  t.strictSame(missing, []);
});

t.test('the list has each file of migrations once', async (t) => {
  const found = globSync('**/migrations/*.sql', { cwd: LIB }).map((file) => path.basename(file));
  const listed = migrations.map(({ number, name }) => `${String(number).padStart(3, '0')}-${name}.sql`);
  matchLists(t, listed.sort(), found.sort());
});
