/**
 * The roster's tables as buckets, for reading through the bucket store with filters, sorting and
 * paging. Only the roster's own statements write them. `_etag` is the row's version in the
 * database.
 */
import { columnsBucket } from '../../platform/moray/bucket.ts';

export const rosterAuthorityBucket = columnsBucket({
  name: 'cnapi_roster_authority',
  key: 'server_uuid',
  fields: {
    server_uuid: { type: 'uuid' },
    cnapi_uuid: { type: 'uuid' },
    run: { type: 'uuid' },
    epoch: { type: 'number' },
    status: { type: 'string' },
    reason: { type: 'string' },
    since: { type: 'timestamp' },
    said_by: { type: 'uuid' },
    incarnation: { type: 'uuid' },
    conn: { type: 'number' },
    journal_id: { type: 'uuid' },
    inventory_epoch: { type: 'number' },
  },
  etag: 'xmin::text',
  mtime: 'since',
});

export const instancesBucket = columnsBucket({
  name: 'cnapi_instances',
  key: 'run',
  fields: {
    run: { type: 'uuid' },
    cnapi_uuid: { type: 'uuid' },
    url: { type: 'string' },
    host: { type: 'string' },
    port: { type: 'number' },
    pid: { type: 'number' },
    version: { type: 'string' },
    state: { type: 'string' },
    beat: { type: 'number' },
    agents: { type: 'number' },
    admission: { type: 'string' },
    started_at: { type: 'timestamp' },
    draining_since: { type: 'timestamp' },
    ended_at: { type: 'timestamp' },
    end_reason: { type: 'string' },
  },
  etag: 'xmin::text',
  mtime: 'coalesce(ended_at, started_at)',
});
