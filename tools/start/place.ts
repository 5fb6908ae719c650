/**
 * Where things are: the data directory, and the unprivileged user that Postgres runs as when we are root. Where that user
 * cannot reach the checkout (a clone under /root), everything goes to /var/lib/cnapi/<hash of the directory> instead.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, type Stats, statSync } from 'node:fs';
import path from 'node:path';

export interface Identity {
  uid?: number;
  gid?: number;
}

export interface Place {
  /** Data directory: identities, secrets, `log`, `postgres`, `redis`, `agent`, `fleet`. */
  data: string;
  /** The directory asked for, where it could not be used. */
  instead: string | undefined;
}

export const projectRoot = path.resolve(import.meta.dirname, '../..');

const fallbackBase = '/var/lib/cnapi';

/** The data directory for `asked`; the same answer each time, so that `--stop` finds what `start` made. */
export function findPlace(asked: string | undefined): Place {
  const wanted = path.resolve(asked ?? path.join(projectRoot, 'data'));
  if (process.getuid?.() !== 0 || isReachableBy(existingIdentity(), wanted))
    return { data: wanted, instead: undefined };
  const hash = createHash('sha256').update(wanted).digest('hex').slice(0, 12);
  return { data: path.join(fallbackBase, hash), instead: wanted };
}

/** Makes the folders of the data directory. @throws system errors */
export function makePlace(place: Place): void {
  mkdirSync(place.data, { recursive: true, mode: 0o711 });
  for (const folder of ['log', 'config']) mkdirSync(path.join(place.data, folder), { recursive: true, mode: 0o750 });
}

/** Whom Postgres runs as: ourselves, or as root `postgres` (made if absent), or `nobody` where no user can be made. */
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

/** Whether that user (any other user, if undefined) may pass through every existing folder down to `target`. */
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
