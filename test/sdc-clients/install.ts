/**
 * Installs the client from its lock file, without install scripts. This is not part of set-up,
 * because only this folder's test needs it and its dependencies should not mix with others.
 */
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { takeLock } from '../../tools/setup/lock.mjs';
import { runNpm } from '../../tools/setup/npm.mjs';

const folder = import.meta.dirname;
const runtime = path.join(folder, '../../.runtime');
/**
 * Inside the directory that `npm ci` removes first, and written last, so that an interrupted
 * installation does not count.
 */
const stamp = path.join(folder, 'node_modules/.installed');

/**
 * Does nothing when it is installed. Several processes may call it at once. @throws SetupError,
 * with advice.
 */
export async function installClient(): Promise<void> {
  if (isInstalled()) return;
  mkdirSync(runtime, { recursive: true });
  const lock = await takeLock(runtime, 'sdc-clients', () => undefined);
  if (isInstalled()) return;
  await runNpm(folder, ['ci', '--ignore-scripts'], lock);
  writeFileSync(stamp, wanted());
}

function isInstalled(): boolean {
  return existsSync(stamp) && readFileSync(stamp, 'utf8') === wanted();
}

function wanted(): string {
  return createHash('sha256')
    .update(readFileSync(path.join(folder, 'package-lock.json')))
    .digest('hex');
}
