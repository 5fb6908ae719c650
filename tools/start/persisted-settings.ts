/**
 * Data that must be the same at the next start: uuids of the instances, passwords, the ports of
 * Postgres and Redis. Each is a small file in the data directory that only its owner can read and
 * that is replaced in one step.
 */
import { randomBytes } from 'node:crypto';
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { Random } from '../../lib/platform/random.ts';

/**
 * Returns uuids for `count` instances: those of the earlier start, and new ones if there were
 * fewer.
 */
export function instanceUuids(data: string, count: number, random: Random): string[] {
  const file = path.join(data, 'config', 'instances.json');
  const known = readJson<string[]>(file) ?? [];
  while (known.length < count) known.push(random.uuid());
  writePrivate(file, JSON.stringify(known));
  return known.slice(0, count);
}

/**
 * Stores the addresses of the instances, for the message to a user who starts a second supervisor.
 */
export function rememberUrls(data: string, urls: readonly string[]): void {
  writePrivate(urlsFile(data), JSON.stringify(urls));
}

export function rememberedUrls(data: string): string[] {
  return readJson<string[]>(urlsFile(data)) ?? [];
}

function urlsFile(data: string): string {
  return path.join(data, 'config', 'run.json');
}

/** Returns the password stored under `name`; creates it at first use. */
export function password(data: string, name: string): string {
  const file = path.join(data, 'config', `${name}.password`);
  const known = read(file);
  if (known !== undefined && known !== '') return known;
  const made = randomBytes(24).toString('base64url');
  writePrivate(file, made);
  return made;
}

export function rememberedPort(data: string, name: string): number | undefined {
  const port = Number(read(path.join(data, 'config', `${name}.port`)));
  return Number.isInteger(port) && port > 0 ? port : undefined;
}

export function rememberPort(data: string, name: string, port: number): void {
  writePrivate(path.join(data, 'config', `${name}.port`), String(port));
}

/** Writes `text` in one step, readable by this user alone. @throws system errors */
export function writePrivate(file: string, text: string): void {
  writeFileSync(`${file}.new`, text, { mode: 0o600 });
  renameSync(`${file}.new`, file);
}

function readJson<Value>(file: string): Value | undefined {
  const text = read(file);
  if (text === undefined) return undefined;
  try {
    return JSON.parse(text) as Value;
  } catch {
    return undefined;
  }
}

/** Returns undefined when the file cannot be read. */
export function read(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8').trim();
  } catch {
    return undefined;
  }
}
