/**
 * `npm run imports`: prints the complaints about the structure of the code; exit code 1 if there
 * are any.
 */
import path from 'node:path';
import { checkTable, checkTree } from './check.ts';
import { checkComments } from './comments-check.ts';
import { checkExports } from './exports-check.ts';
import { checkNames } from './names-check.ts';
import { checkTableUses } from './table-check.ts';

const root = path.resolve(import.meta.dirname, '../..');
const complaints = [
  ...checkTree(root),
  ...checkTable(root),
  ...checkTableUses(root),
  ...checkExports(root),
  ...checkNames(root),
  ...checkComments(root),
];
for (const complaint of complaints) console.error(complaint);
console.error(complaints.length === 0 ? 'imports: as they should be' : `imports: ${complaints.length} to fix`);
process.exitCode = complaints.length === 0 ? 0 : 1;
