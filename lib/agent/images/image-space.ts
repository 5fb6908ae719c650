/**
 * Shares the space of images (`--image-space`) among those that are ready and those that load. A
 * loading image holds the larger of its archive and its unpacked layers, from before the bytes are
 * written. A part that is kept for a later attempt stays held. Used by image-files.ts.
 */
import { statfs } from 'node:fs/promises';
import type { StoredImage } from './image.ts';
import { NoImageSpaceError } from './image-errors.ts';

interface ImageSpaceDeps {
  /** A directory of the disk that images are on. */
  directory: string;
  maxBytes: number;
  list(): StoredImage[];
}

/** Free disk space that images leave to everything else on the disk. */
const LEFT_FREE_BYTES = 256 * 1024 * 1024;

export class ImageSpace {
  readonly #deps: ImageSpaceDeps;
  /** Bytes by the uuid of an image; instead of what its record says. */
  readonly #held = new Map<string, number>();

  constructor(deps: ImageSpaceDeps) {
    this.#deps = deps;
  }

  /** Bytes that no image holds. With a uuid, the bytes that this image holds are added. */
  async freeBytes(uuid?: string): Promise<number> {
    const own = uuid === undefined ? 0 : this.#heldBy(uuid);
    const { bavail, bsize } = await statfs(this.#deps.directory);
    return Math.max(Math.min(this.#unheldBytes(), bavail * bsize - LEFT_FREE_BYTES) + own, 0);
  }

  /**
   * Makes the image hold `bytes` altogether. @throws NoImageSpaceError; the image then holds what
   * it held before
   */
  hold(uuid: string, bytes: number): void {
    const more = bytes - this.#heldBy(uuid);
    if (more <= 0) return;
    if (more > this.#unheldBytes())
      throw new NoImageSpaceError(
        `Images may use ${this.#deps.maxBytes} bytes (--image-space), and others have what image ${uuid} needs; wait until other loads have ended, or delete images that are not needed`,
      );
    this.#held.set(uuid, bytes);
  }

  /** Like `hold`, and also checks the free space of the disk. @throws NoImageSpaceError */
  async reserve(uuid: string, bytes: number): Promise<void> {
    const free = await this.freeBytes(uuid);
    if (bytes > free)
      throw new NoImageSpaceError(
        `Image ${uuid} needs ${bytes} bytes, and ${free} are free; delete VMs or images that are not needed`,
      );
    this.hold(uuid, bytes);
  }

  /** Sets what the image holds to the bytes that it has on disk. */
  keep(uuid: string, bytes: number): void {
    this.#held.set(uuid, bytes);
  }

  release(uuid: string): void {
    this.#held.delete(uuid);
  }

  #heldBy(uuid: string): number {
    return this.#held.get(uuid) ?? 0;
  }

  #unheldBytes(): number {
    const finished = this.#deps.list().filter(({ uuid }) => !this.#held.has(uuid));
    const used = finished.flatMap(({ layers }) => layers).reduce((sum, { bytes }) => sum + bytes, 0);
    const held = [...this.#held.values()].reduce((sum, bytes) => sum + bytes, 0);
    return this.#deps.maxBytes - used - held;
  }
}
