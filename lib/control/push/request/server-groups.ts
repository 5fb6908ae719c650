/** The groups of servers for which a push job can be created. They are documents. */
import type { BucketStore } from '../../../platform/moray/bucket-store.ts';
import { eq } from '../../../platform/moray/filter.ts';
import { type ServerGroup, serverGroups } from '../../../protocol/api/documents/server-groups.ts';
import { buildBucket } from '../../documents/document-bucket.ts';

const MAX_GROUP_BYTES = 1024 * 1024;
const serverGroupsBucket = buildBucket(serverGroups);

/** The group of servers with this name. */
export async function findServerGroup(
  buckets: Pick<BucketStore, 'page'>,
  name: string,
): Promise<ServerGroup | undefined> {
  const { objects } = await buckets.page<ServerGroup>(serverGroupsBucket, eq('name', name), {
    limit: 1,
    after: undefined,
    bytes: MAX_GROUP_BYTES,
  });
  return objects[0]?.value;
}
