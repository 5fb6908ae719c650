/**
 * What the agent knows of an image. Sizes are bytes, times milliseconds of the machine's wall
 * clock.
 */
import { UUID } from '../../platform/uuid.ts';
import { InvalidImageError } from './image-errors.ts';
import type { ImageState } from './image-lifecycle.ts';
import type { ImageDefaults } from './image-store.ts';

/** How containers of the image start by default, with the names of the OCI image specification. */
export interface ImageConfig {
  Entrypoint?: readonly string[] | undefined;
  Cmd?: readonly string[] | undefined;
  /** NAME=VALUE each. */
  Env?: readonly string[] | undefined;
  WorkingDir?: string | undefined;
  User?: string | undefined;
}

interface ImageLayer {
  digest: string;
  /** Unpacked. */
  bytes: number;
}

export interface StoredImage {
  uuid: string;
  state: ImageState;
  /** The image's URL without query, `stream`, or `vm` if it was made from a VM of this server. */
  source: string;
  /**
   * Digest of the archive as it arrived: `sha256:` and hexadecimal digits. Absent until it is
   * known.
   */
  digest?: string | undefined;
  /** The lowest first. Empty until they are unpacked. */
  layers: readonly ImageLayer[];
  config: ImageConfig;
  createdAt: number;
  lastUsedAt: number;
  /** Ids of the containers that use it. */
  usedBy: readonly string[];
}

export const DIGEST = /^sha256:[0-9a-f]{64}$/;

/** Both name files. @throws InvalidImageError */
export function checkNames(uuid: string, digest?: string): void {
  if (!UUID.test(uuid)) throw new InvalidImageError('uuid is not a UUID in lower case');
  if (digest !== undefined && !DIGEST.test(digest))
    throw new InvalidImageError('digest is not a digest; give sha256: and 64 hexadecimal digits in lower case');
}

/** Without the fields that are null. */
export function imageConfigOf(defaults: ImageDefaults): ImageConfig {
  return Object.fromEntries(Object.entries(defaults).filter(([, value]) => value !== null && value !== undefined));
}

/** The name of the directory of a layer. @throws Error unless it is a digest */
export function layerNameOf(digest: string): string {
  if (!DIGEST.test(digest)) throw new Error(`${digest.slice(0, 80)} is not a digest`);
  return digest.slice('sha256:'.length);
}
