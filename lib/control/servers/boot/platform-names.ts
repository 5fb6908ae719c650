/** The names of the platforms that an operator has declared, read from the bucket of that noun. */
import type { BucketStore } from '../../../platform/moray/bucket-store.ts';
import { and } from '../../../platform/moray/filter.ts';
import { type BootPlatform, bootPlatforms, MAX_PLATFORMS } from '../../../protocol/api/documents/platforms.ts';
import { buildBucket } from '../../documents/document-bucket.ts';

const PAGE_BYTES = 1024 * 1024;

const bucket = buildBucket(bootPlatforms);

export class PlatformNames {
  readonly #buckets: BucketStore;

  constructor({ buckets }: { buckets: BucketStore }) {
    this.#buckets = buckets;
  }

  async names(): Promise<readonly string[]> {
    const { objects } = await this.#buckets.page<BootPlatform>(bucket, and(), {
      limit: MAX_PLATFORMS,
      bytes: PAGE_BYTES,
    });
    return objects.map(({ value }) => value.name);
  }
}
