/**
 * The tasks' table as a bucket, for whoever looks through the bucket store: filters, sorting, paging. Written by the
 * tasks' own statements only; `_etag` is the row's version in the database.
 */
import { columnsBucket } from '../moray/bucket.ts';

export const tasksBucket = columnsBucket({
  name: 'cnapi_tasks',
  key: 'id',
  fields: {
    id: { type: 'uuid' },
    server_uuid: { type: 'uuid' },
    name: { type: 'string' },
    req_id: { type: 'string' },
    ticket_uuid: { type: 'uuid' },
    state: { type: 'string' },
    outcome: { type: 'string' },
    attempt: { type: 'number' },
    epoch: { type: 'number' },
    timeout_ms: { type: 'number' },
    idempotent: { type: 'boolean' },
    created_at: { type: 'timestamp' },
    started_at: { type: 'timestamp' },
    cancel_requested_at: { type: 'timestamp' },
    ended_at: { type: 'timestamp' },
  },
  etag: 'xmin::text',
  mtime: 'coalesce(ended_at, progress_at, started_at, accepted_at, claimed_at, queued_at)',
});
