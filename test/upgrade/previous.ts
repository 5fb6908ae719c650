/**
 * The previous minor version as a kept build (`pack` says how it was made), unpacked for one test.
 */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import type { Teardown } from '../support/postgres.ts';

export const PREVIOUS = '0.1.0';
const ARCHIVE = path.join(import.meta.dirname, 'cnapi-0.1.tar.gz');
const HERE = path.resolve(import.meta.dirname, '../..');

/**
 * Returns the folder of its server.ts; its dependencies are those of this version. Removed when `t`
 * ends.
 */
export function unpackPrevious(t: Teardown): string {
  const root = mkdtempSync(path.join(os.tmpdir(), 'cnapi-previous-'));
  t.teardown(() => rmSync(root, { recursive: true, force: true }));
  execFileSync('tar', ['-xzf', ARCHIVE, '-C', root]);
  symlinkSync(path.join(HERE, 'node_modules'), path.join(root, 'node_modules'));
  const { version } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8')) as { version: string };
  if (version !== PREVIOUS) throw new Error(`the kept build is of ${version}, not of ${PREVIOUS}`);
  return root;
}
