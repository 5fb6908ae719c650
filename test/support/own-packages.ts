/**
 * Installs the packages of a test folder that has a package.json and lock file of its own, without
 * install scripts. This is not part of set-up, because only that folder's test needs them and their
 * dependencies should not mix with others.
 */
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { takeLock } from '../../tools/setup/lock.mjs';
import { runNpm } from '../../tools/setup/npm.mjs';

const runtime = path.join(import.meta.dirname, '../../.runtime');

/**
 * Does nothing when they are installed. Several processes may call it at once. @throws SetupError,
 * with advice.
 */
export async function installPackages(folder: string): Promise<void> {
  if (isInstalled(folder)) return;
  mkdirSync(runtime, { recursive: true });
  const lock = await takeLock(runtime, path.basename(folder), () => undefined);
  if (isInstalled(folder)) return;
  await runNpm(folder, ['ci', '--ignore-scripts'], lock);
  writeFileSync(stampOf(folder), wanted(folder));
}

/**
 * Inside the directory that `npm ci` removes first, and written last, so that an interrupted
 * installation does not count.
 */
const stampOf = (folder: string) => path.join(folder, 'node_modules/.installed');

function isInstalled(folder: string): boolean {
  const stamp = stampOf(folder);
  return existsSync(stamp) && readFileSync(stamp, 'utf8') === wanted(folder);
}

function wanted(folder: string): string {
  return createHash('sha256')
    .update(readFileSync(path.join(folder, 'package-lock.json')))
    .digest('hex');
}
