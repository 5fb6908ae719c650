/**
 * Reads the file of a package: first everything is verified, then it is unpacked. Only what the
 * manifest names is written, and only regular files; anything else refuses the package as a whole.
 */
import { createHash, type KeyObject } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { type FileHandle, mkdir, open, rename, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { Readable } from 'node:stream';
import { type ArchiveEntry, readArchive } from '../containers/layers/archive.ts';
import { LayerSource } from '../containers/layers/layer-source.ts';
import { lstatIfAny } from '../containers/root/lstat.ts';
import { syncFiles } from '../containers/root/program.ts';
import { syncDirectory } from '../sync-directory.ts';
import type { InstalledVersion } from '../versions/agent-versions.ts';
import { openManifest, PACKAGE_ENTRIES, type PackagedFile, type PackageManifest } from './manifest.ts';
import { InvalidPackageError } from './package-errors.ts';

export interface VerifiedPackage extends InstalledVersion {
  manifest: PackageManifest;
}

const MAX_MANIFEST_BYTES = 16 * 1024 * 1024;
const SIGNATURE_BYTES = 64;
const MAX_UNPACKED_BYTES = 2 * 1024 ** 3;
/** Size of an entry's headers and padding in the archive, besides its contents. */
const BYTES_PER_ENTRY = 4_096;

/** @throws UntrustedPackageError, InvalidPackageError, LayerError */
export async function verifyPackage(
  file: string,
  { keys, signal }: { keys: readonly KeyObject[]; signal: AbortSignal },
): Promise<VerifiedPackage> {
  const entries = entriesOf(file, signal);
  const manifestBytes = await smallBody(await nextEntry(entries, 0), MAX_MANIFEST_BYTES);
  const signature = await smallBody(await nextEntry(entries, 1), SIGNATURE_BYTES);
  const manifest = openManifest(manifestBytes, signature, keys);
  const { bytes, sha256 } = manifest.archive;
  const archive = await nextEntry(entries, 2);
  if (archive.size !== bytes || (await sha256Of(archive.body)) !== sha256)
    throw new InvalidPackageError('its files are not those that were signed');
  if ((await entries.next()).done !== true) throw new InvalidPackageError('it has more than its three files');
  return { manifest, version: manifest.version, digest: createHash('sha256').update(manifestBytes).digest('hex') };
}

/**
 * Unpacks a verified package. The directory gets its name when all of it is on disk; one that is
 * there is complete. @throws InvalidPackageError, LayerError
 */
export async function installFiles(
  file: string,
  { manifest, directory, signal }: { manifest: PackageManifest; directory: string; signal: AbortSignal },
): Promise<void> {
  if ((await lstatIfAny(directory)) !== undefined) return;
  const unfinished = `${directory}.new`;
  await rm(unfinished, { recursive: true, force: true });
  await mkdir(unfinished, { mode: 0o700 });
  try {
    await unpackPackage(file, { manifest, directory: unfinished, signal });
    await syncFiles(unfinished);
    signal.throwIfAborted();
    await rename(unfinished, directory);
    await syncDirectory(dirname(directory));
  } catch (error) {
    await rm(unfinished, { recursive: true, force: true });
    throw error;
  }
}

async function unpackPackage(
  file: string,
  { manifest, directory, signal }: { manifest: PackageManifest; directory: string; signal: AbortSignal },
): Promise<void> {
  const missing = new Map(manifest.files.map((file) => [file.path, file]));
  for await (const entry of filesOf(file, manifest, signal)) {
    if (entry.kind === 'directory') continue;
    if (entry.kind !== 'file') throw new InvalidPackageError(`${shown(entry.path)} is a ${entry.kind}, and no file`);
    const expected = missing.get(entry.path);
    if (expected === undefined) throw new InvalidPackageError(`${shown(entry.path)} is not in its manifest`);
    missing.delete(entry.path);
    await writeFileOf(entry, expected, join(directory, expected.path));
  }
  const [absent] = missing.keys();
  if (absent !== undefined) throw new InvalidPackageError(`${shown(absent)} of its manifest is missing`);
}

async function* filesOf(
  file: string,
  manifest: PackageManifest,
  signal: AbortSignal,
): AsyncGenerator<ArchiveEntry, void> {
  const content = manifest.files.reduce((sum, { size }) => sum + size, 0);
  const maxBytes = Math.min(content + BYTES_PER_ENTRY * (2 * manifest.files.length + 8), MAX_UNPACKED_BYTES);
  const entries = entriesOf(file, signal);
  for (const index of [0, 1]) await nextEntry(entries, index);
  const { body } = await nextEntry(entries, 2);
  const source = new LayerSource(Readable.from(body, { objectMode: false }), { maxBytes });
  yield* readArchive(source.bytes());
}

const entriesOf = (file: string, signal: AbortSignal): AsyncGenerator<ArchiveEntry, void> =>
  readArchive(createReadStream(file, { signal }));

async function nextEntry(entries: AsyncGenerator<ArchiveEntry, void>, index: number): Promise<ArchiveEntry> {
  const { value, done } = await entries.next();
  if (done !== true && value.kind === 'file' && value.path === PACKAGE_ENTRIES[index]) return value;
  throw new InvalidPackageError(`it does not consist of ${PACKAGE_ENTRIES.join(', ')} in this order`);
}

async function smallBody({ body, size, path }: ArchiveEntry, maxBytes: number): Promise<Buffer> {
  if (size > maxBytes) throw new InvalidPackageError(`${path} has more than ${maxBytes} bytes`);
  return Buffer.concat(await Array.fromAsync(body));
}

async function sha256Of(body: AsyncIterable<Buffer>): Promise<string> {
  const hash = createHash('sha256');
  for await (const piece of body) hash.update(piece);
  return hash.digest('hex');
}

async function writeFileOf(entry: ArchiveEntry, expected: PackagedFile, path: string): Promise<void> {
  if (entry.size !== expected.size) throw new InvalidPackageError(`${shown(entry.path)} has another size than signed`);
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  const file = await open(path, 'wx', expected.executable ? 0o700 : 0o600);
  try {
    const digest = await copy(entry.body, file);
    if (digest !== expected.sha256) throw new InvalidPackageError(`${shown(entry.path)} is not what was signed`);
  } finally {
    await file.close();
  }
}

async function copy(body: AsyncIterable<Buffer>, file: FileHandle): Promise<string> {
  const hash = createHash('sha256');
  for await (const piece of body) {
    hash.update(piece);
    await file.writeFile(piece);
  }
  return hash.digest('hex');
}

const shown = (text: string): string => JSON.stringify(text.slice(0, 100));
