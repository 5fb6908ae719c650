/** Makes the bytes of a signed package (lib/agent/packages/manifest.ts says what they are). */
import { createHash, type KeyObject, sign } from 'node:crypto';
import { gzipSync } from 'node:zlib';
import { Header, Pax } from 'tar';
import { PACKAGE_ENTRIES, type PackageManifest, signedBytes } from '../../lib/agent/packages/manifest.ts';

export interface FileToPackage {
  path: string;
  contents: Buffer;
  executable?: boolean;
}

interface PackageToBuild {
  name: string;
  version: string;
  /** The oldest Node that runs it. */
  node?: string;
  files: readonly FileToPackage[];
  /** Ed25519. */
  privateKey: KeyObject;
}

const BLOCK_BYTES = 512;

export function buildPackage({ privateKey, files, ...about }: PackageToBuild): Buffer {
  const archive = gzipSync(tarOf(files));
  const manifest: PackageManifest = {
    format: 1,
    ...about,
    archive: { bytes: archive.length, sha256: sha256(archive) },
    files: files.map(describe),
  };
  const text = Buffer.from(JSON.stringify(manifest));
  const parts = [text, sign(null, signedBytes(text), privateKey), archive];
  return tarOf(PACKAGE_ENTRIES.map((path, index) => ({ path, contents: parts[index] ?? Buffer.alloc(0) })));
}

function describe({ path, contents, executable }: FileToPackage): PackageManifest['files'][number] {
  return { path, size: contents.length, sha256: sha256(contents), ...(executable ? { executable } : {}) };
}

/** A plain tar; the same files give the same bytes. */
export function tarOf(files: readonly FileToPackage[]): Buffer {
  return Buffer.concat([...files.flatMap(entryOf), Buffer.alloc(2 * BLOCK_BYTES)]);
}

function entryOf({ path, contents, executable = false }: FileToPackage): Buffer[] {
  const size = contents.length;
  const block = Buffer.alloc(BLOCK_BYTES);
  const owner = { uid: 0, gid: 0, mtime: new Date(0) };
  const header = new Header({ path, size, mode: executable ? 0o755 : 0o644, type: 'File', ...owner });
  const needsPax = header.encode(block);
  const pax = needsPax ? [new Pax({ path }).encode()] : [];
  return [...pax, block, contents, Buffer.alloc((BLOCK_BYTES - (size % BLOCK_BYTES)) % BLOCK_BYTES)];
}

const sha256 = (contents: Buffer): string => createHash('sha256').update(contents).digest('hex');
