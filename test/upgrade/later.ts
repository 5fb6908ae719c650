/**
 * A later version for the upgrade tests, because no version has been released yet: this checkout is
 * the earlier one, and the later one is a copy of it with further migrations. They are of the kinds
 * that the rules allow: a new column that may be null, a function with a compatible new text, and a
 * new index.
 */
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { migrations } from '../../lib/control/subsystem-list.ts';
import type { Migration } from '../../lib/platform/postgres/migrations.ts';
import { VERSION } from '../../lib/platform/version.ts';
import type { Teardown } from '../support/postgres.ts';

export const LATER = VERSION.replace(/\.(\d+)\..*/, (_, minor: string) => `.${Number(minor) + 1}.0`);

const HERE = path.resolve(import.meta.dirname, '../..');
const COPIED = ['lib', 'server.ts', 'package.json', 'tsconfig.json'];

/** The later version's migrations beyond this version's. */
export const laterSteps: readonly Migration[] = [
  {
    subsystem: 'tasks',
    number: nextNumber('tasks'),
    name: 'claim-note',
    sql: 'alter table cnapi_tasks add column claim_note text;\n',
  },
  {
    subsystem: 'tasks',
    number: nextNumber('tasks') + 1,
    name: 'note-claims',
    // Once it is committed, the function also serves the claims of instances of this version.
    sql: replacing(
      ['create function cnapi_given', 'create or replace function cnapi_given'],
      ['create function cnapi_claim', 'create or replace function cnapi_claim'],
      ["set state = 'claimed',", "set claim_note = 'later', state = 'claimed',"],
    ),
  },
  {
    subsystem: 'waitlist',
    number: nextNumber('waitlist'),
    name: 'tickets-of-requests',
    sql: 'create index cnapi_waitlist_requests on cnapi_waitlist_tickets (reqid);\n',
  },
];

/** Returns the folder of its server.ts; removed when `t` ends. */
export function makeLater(t: Teardown): string {
  const root = mkdtempSync(path.join(os.tmpdir(), 'cnapi-later-'));
  t.teardown(() => rmSync(root, { recursive: true, force: true }));
  for (const entry of COPIED) cpSync(path.join(HERE, entry), path.join(root, entry), { recursive: true });
  symlinkSync(path.join(HERE, 'node_modules'), path.join(root, 'node_modules'));
  const manifest = path.join(root, 'package.json');
  writeFileSync(manifest, JSON.stringify({ ...JSON.parse(readFileSync(manifest, 'utf8')), version: LATER }));
  for (const { subsystem, number, name, sql } of laterSteps) {
    const file = `${String(number).padStart(3, '0')}-${name}.sql`;
    writeFileSync(path.join(root, 'lib/control', subsystem, 'migrations', file), sql);
  }
  return root;
}

function nextNumber(subsystem: string): number {
  return 1 + Math.max(...migrations.filter((one) => one.subsystem === subsystem).map(({ number }) => number));
}

/** The present text of the claim with changes, each of which must be possible once. */
function replacing(...changes: [was: string, is: string][]): string {
  const text = migrations.findLast(({ name }) => name === 'claim-for-sessions')?.sql ?? '';
  return changes.reduce((changed, [was, is]) => {
    if (changed.split(was).length !== 2) throw new Error(`the claim has not, or not once: ${was}`);
    return changed.replace(was, is);
  }, text);
}
