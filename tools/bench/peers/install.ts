/**
 * The peers' packages, in this folder and from its own lock file: no part of the project's dependencies, and fetched only when
 * they are asked for. Done once for each state of the lock file.
 */
import { execFile } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { guard } from '../../processes/guardian.ts';

const folder = import.meta.dirname;
const lockFile = path.join(folder, 'package-lock.json');
const stampFile = path.join(folder, 'node_modules', '.cnapi-bench');

/** @throws when npm does not bring them, with its last words */
export async function installPeers(say: (text: string) => void): Promise<void> {
  const wanted = readFileSync(lockFile, 'utf8');
  if (readIfThere(stampFile) === wanted) return;
  say('installing the peers (npm ci in tools/bench/peers); this takes some seconds the first time');
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
