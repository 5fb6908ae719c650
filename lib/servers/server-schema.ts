/** The servers' bucket, and migrations 20-29: the parts of a server that have rows of their own. */
import { documentBucket } from '../moray/bucket.ts';
import type { Migration } from '../moray/migrations.ts';

/** Key: the server's uuid, or `default` (whose `uuid` column is null) for what new servers begin with. */
export const serversBucket = documentBucket({
  name: 'cnapi_servers',
  version: 1,
  indexes: {
    datacenter: { type: 'string' },
    headnode: { type: 'boolean' },
    hostname: { type: 'string' },
    reserved: { type: 'boolean' },
    reservoir: { type: 'boolean' },
    setup: { type: 'boolean' },
    uuid: { type: 'uuid', unique: true },
  },
});

const parts = `
create table cnapi_server_sysinfo (
  server_uuid uuid primary key,
  digest text not null,
  sysinfo jsonb not null,
  stored_at timestamptz not null
);
create table cnapi_server_reports (
  server_uuid uuid primary key,
  vms jsonb not null,
  memory jsonb not null,
  disk jsonb not null,
  stored_at timestamptz not null
);
`;

export const serverMigrations: Migration[] = [{ number: 20, name: 'parts of servers', sql: parts }];
