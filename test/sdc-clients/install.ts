/**
 * Sees to it that the client is installed as its lock file says, without install scripts. Not part of set-up: only this
 * folder's test needs it, and its dependencies are to stay away from everybody else's.
 */
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { takeLock } from '../../tools/setup/lock.mjs';
import { runNpm } from '../../tools/setup/npm.mjs';

const folder = import.meta.dirname;
const runtime = path.join(folder, '../../.runtime');
/** Inside what `npm ci` removes first, and written last: an installation cut short does not count. */
const stamp = path.join(folder, 'node_modules/.installed');

/** Harmless when it is installed; several processes may ask at once. @throws SetupError, with advice. */
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
