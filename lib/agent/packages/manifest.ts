/**
 * The manifest of a package, and what its signature covers. A package is a plain tar of three
 * files, in this order:
 *
 *     manifest.json    name, version, and each file with its size and SHA-256
 *     signature        64 bytes: Ed25519 over SIGNED_PREFIX and all bytes of manifest.json
 *     files.tar.gz     the files; its size and SHA-256 are in the manifest
 *
 * So the signature covers everything, and nothing is decompressed before it was verified. Pure;
 * used by the agent, and by the tool that makes packages. docs/agent-packages.md.
 */
import { type KeyObject, verify } from 'node:crypto';
import { z } from 'zod';
import { messageOf } from '../../platform/errors.ts';
import { PACKAGE_VERSION } from '../versions/version-order.ts';
import { InvalidPackageError, UntrustedPackageError } from './package-errors.ts';

/** The entries of a package, in their order. */
export const PACKAGE_ENTRIES = ['manifest.json', 'signature', 'files.tar.gz'] as const;
/** The name of this agent's own packages, as of Triton's. */
export const OWN_PACKAGE = 'cn-agent';
/** A signature of something else, made with the same key, is none of a package. */
const SIGNED_PREFIX = Buffer.from('cnapi agent package 1\n');

const SHA256 = /^[0-9a-f]{64}$/;
/** Also the name of a directory. */
const PACKAGE_NAME = /^[a-z][a-z0-9]*(?:-[a-z0-9]+)*$/;
const MAX_PACKAGE_NAME_CHARS = 64;
const MAX_FILES = 50_000;
const MAX_PATH_CHARS = 1_000;
/** Longer ones cannot be written. */
const MAX_FILE_NAME_BYTES = 255;

const packagedFile = z.strictObject({
  path: z.string().max(MAX_PATH_CHARS).refine(isPlainPath, 'is not a relative path of plain names'),
  size: z.int().min(0),
  sha256: z.string().regex(SHA256),
  executable: z.boolean().optional(),
});

const manifestSchema = z.strictObject({
  format: z.literal(1),
  name: z.string().max(MAX_PACKAGE_NAME_CHARS).regex(PACKAGE_NAME),
  version: z.string().regex(PACKAGE_VERSION),
  /** The oldest Node that runs it. */
  node: z.string().regex(PACKAGE_VERSION).optional(),
  archive: z.strictObject({ bytes: z.int().min(1), sha256: z.string().regex(SHA256) }),
  files: z.array(packagedFile).min(1).max(MAX_FILES),
});

export type PackagedFile = z.infer<typeof packagedFile>;
export type PackageManifest = z.infer<typeof manifestSchema>;

/** What is signed, for these bytes of a manifest. */
export const signedBytes = (manifest: Buffer): Buffer => Buffer.concat([SIGNED_PREFIX, manifest]);

/**
 * @param bytes of the manifest, exactly as they are in the package
 * @throws UntrustedPackageError, before anything of the manifest is read; InvalidPackageError
 */
export function openManifest(bytes: Buffer, signature: Buffer, keys: readonly KeyObject[]): PackageManifest {
  if (!keys.some((key) => verify(null, signedBytes(bytes), key, signature))) throw new UntrustedPackageError();
  try {
    const manifest = manifestSchema.parse(JSON.parse(bytes.toString('utf8')));
    checkPaths(manifest.files);
    return manifest;
  } catch (error) {
    if (error instanceof InvalidPackageError) throw error;
    throw new InvalidPackageError(`its manifest is wrong (${firstIssueOf(error)})`, error);
  }
}

function firstIssueOf(error: unknown): string {
  const issue = error instanceof z.ZodError ? error.issues[0] : undefined;
  return issue === undefined ? messageOf(error) : `${issue.path.join('.')}: ${issue.message}`;
}

/** No path twice, and none below a file. */
function checkPaths(files: readonly PackagedFile[]): void {
  const paths = new Set<string>();
  for (const { path } of files) {
    if (paths.has(path)) throw new InvalidPackageError(`it has ${path} twice`);
    paths.add(path);
  }
  for (const path of paths)
    for (let at = path.indexOf('/'); at >= 0; at = path.indexOf('/', at + 1))
      if (paths.has(path.slice(0, at))) throw new InvalidPackageError(`${path.slice(0, at)} is a file and a directory`);
}

function isPlainPath(path: string): boolean {
  const names = path.split('/');
  return (
    !path.includes('\0') &&
    names.every((name) => !['', '.', '..'].includes(name) && Buffer.byteLength(name) <= MAX_FILE_NAME_BYTES)
  );
}
