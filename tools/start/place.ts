/**
 * Decides where files go: the data directory, and the unprivileged user that Postgres runs as when
 * we are root. If that user cannot reach the checkout (a clone under /root), everything goes to
 * /var/lib/cnapi/<hash of the directory>.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, type Stats, statSync } from 'node:fs';
import path from 'node:path';
import { Refusal } from './refusal.ts';

export interface Identity {
  uid?: number;
  gid?: number;
}

export interface Place {
  /** Data directory: identities, secrets, `log`, `postgres`, `redis`, `agent`, `fleet`. */
  data: string;
  /** The requested directory, if it could not be used. */
  instead: string | undefined;
}

export const projectRoot = path.resolve(import.meta.dirname, '../..');

const fallbackBase = '/var/lib/cnapi';

/**
 * Returns the data directory for `asked`. The answer is the same each time, so that `--stop` finds
 * what `start` made.
 * @throws Refusal if `asked`, or what it is to be in, exists and is not a directory
 */
export function findPlace(asked: string | undefined): Place {
  const wanted = path.resolve(asked ?? path.join(projectRoot, 'data'));
  refuseFile(wanted);
  if (process.getuid?.() !== 0 || isReachableBy(existingIdentity(), wanted))
    return { data: wanted, instead: undefined };
  const hash = createHash('sha256').update(wanted).digest('hex').slice(0, 12);
  return { data: path.join(fallbackBase, hash), instead: wanted };
}

function refuseFile(wanted: string): void {
  for (let folder = wanted; ; folder = path.dirname(folder)) {
    const stats = existing(folder);
    if (stats?.isDirectory() === false)
      throw new Refusal(`${folder} is not a directory: choose another place with --data DIR`);
    if (stats !== undefined || folder === path.dirname(folder)) return;
  }
}

/** Undefined if nothing is there, or if this user may not know. */
function existing(file: string): Stats | undefined {
  try {
    return statSync(file);
  } catch {
    return undefined;
  }
}

/** Creates the folders of the data directory. @throws system errors */
export function makePlace(place: Place): void {
  mkdirSync(place.data, { recursive: true, mode: 0o711 });
  for (const folder of ['log', 'config']) mkdirSync(path.join(place.data, folder), { recursive: true, mode: 0o750 });
}

/**
 * Returns the user that Postgres runs as: this user; for root `postgres` (created if absent), or
 * `nobody` if no user can be created.
 */
export function postgresIdentity(): Identity {
  if (process.getuid?.() !== 0) return {};
  return existingIdentity() ?? createdIdentity() ?? identityOf('nobody') ?? { uid: 65_534, gid: 65_534 };
}

function existingIdentity(): Identity | undefined {
  return identityOf('postgres');
}

function createdIdentity(): Identity | undefined {
  spawnSync('groupadd', ['--system', '--force', 'postgres']);
  spawnSync('useradd', [
    '--system',
    '--gid',
    'postgres',
    '--no-create-home',
    '--shell',
    '/usr/sbin/nologin',
    'postgres',
  ]);
  return existingIdentity();
}

function identityOf(user: string): Identity | undefined {
  const ask = (flag: string) => Number(execFileSync('id', [flag, user], { stdio: ['ignore', 'pipe', 'ignore'] }));
  try {
    return { uid: ask('-u'), gid: ask('-g') };
  } catch {
    return undefined;
  }
}

/**
 * Whether that user (if undefined: any other user) may pass through every existing folder down to
 * `target`.
 */
export function isReachableBy(identity: Identity | undefined, target: string): boolean {
  for (let folder = target; ; folder = path.dirname(folder)) {
    const stats = statSync(folder, { throwIfNoEntry: false });
    if (stats !== undefined && !maySearch(identity, stats)) return false;
    if (folder === path.dirname(folder)) return true;
  }
}

function maySearch(identity: Identity | undefined, stats: Stats): boolean {
  if (stats.uid === identity?.uid) return (stats.mode & 0o100) !== 0;
  if (stats.gid === identity?.gid) return (stats.mode & 0o010) !== 0;
  return (stats.mode & 0o001) !== 0;
}
