/**
 * Installs the peers' packages in this folder, from its own lock file. They are not dependencies of
 * the project and are installed only when needed, once for each state of the lock file.
 */
import { execFile } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { guard } from '../processes/guardian.ts';

const folder = import.meta.dirname;
const lockFile = path.join(folder, 'package-lock.json');
const stampFile = path.join(folder, 'node_modules', '.cnapi-peers');

/** @throws when npm fails, with its last output */
export async function installPeers(say: (text: string) => void): Promise<void> {
  const wanted = readFileSync(lockFile, 'utf8');
  if (readIfThere(stampFile) === wanted) return;
  say('installing the peers (npm ci in tools/peers); this happens once');
  await runNpm();
  writeFileSync(stampFile, wanted);
}

function runNpm(): Promise<void> {
  const args = ['ci', '--prefix', folder, '--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error'];
  return new Promise((resolve, reject) => {
    const child = execFile('npm', args, { cwd: folder }, (error, stdout, stderr) => {
      if (error === null) return resolve();
      reject(new Error(`the peers cannot be installed (npm ci): ${(stderr || stdout || error.message).slice(-800)}`));
    });
    guard(child);
  });
}

function readIfThere(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return undefined;
  }
}
