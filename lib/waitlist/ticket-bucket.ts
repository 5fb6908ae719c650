/**
 * The waitlist's tables as buckets, for whoever looks through the bucket store: filters, sorting, paging. Written by the
 * waitlist's own functions only; `_etag` is the row's version in the database.
 */
import { columnsBucket } from '../moray/bucket.ts';

export const ticketsBucket = columnsBucket({
  name: 'cnapi_waitlist_tickets',
  key: 'uuid',
  fields: {
    uuid: { type: 'uuid' },
    server_uuid: { type: 'string' },
    scope: { type: 'string' },
    id: { type: 'string' },
    action: { type: 'string' },
    reqid: { type: 'string' },
    status: { type: 'string' },
    place: { type: 'number' },
    expires_at: { type: 'timestamp' },
    created_at: { type: 'timestamp' },
    updated_at: { type: 'timestamp' },
    active_at: { type: 'timestamp' },
  },
  etag: 'xmin::text',
  mtime: 'updated_at',
});

export const queuesBucket = columnsBucket({
  name: 'cnapi_waitlist_queues',
  key: 'key',
  fields: {
    key: { type: 'number' },
    server_uuid: { type: 'string' },
    scope: { type: 'string' },
    id: { type: 'string' },
    last_place: { type: 'number' },
    created_at: { type: 'timestamp' },
    updated_at: { type: 'timestamp' },
  },
  etag: 'xmin::text',
  mtime: 'updated_at',
});
