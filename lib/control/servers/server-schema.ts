/**
 * The servers' bucket, and migrations: the parts of a server that have rows of their own, and its
 * removal.
 */
import { documentBucket } from '../../platform/moray/bucket.ts';
import type { Migration } from '../../platform/postgres/migrations.ts';

/**
 * Key: the server's uuid, or `default` for the initial values of new servers (its `uuid` column is
 * null).
 */
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

/**
 * Deletes everything stored for a server and removes its authority, in one transaction: a removal
 * happens completely or not at all. It takes its locks in the order document, parts, roster row. A
 * row that says `running` without a document is removed as well; two statements of an earlier
 * version can have left one. Returns no row if there was nothing to remove.
 */
const removeServer = `
create function cnapi_remove_server(by_uuid uuid, removed_uuid uuid)
returns table (previous_run uuid, kept_epoch bigint) language plpgsql volatile as $$
declare
  had_document boolean;
  authority record;
begin
  delete from cnapi_servers where _key = removed_uuid::text;
  had_document := found;
  delete from cnapi_server_sysinfo where server_uuid = removed_uuid;
  delete from cnapi_server_reports where server_uuid = removed_uuid;
  select * into authority from cnapi_remove_authority(by_uuid, removed_uuid);
  if had_document or authority.was_running then
    return query select authority.previous_run, authority.kept_epoch;
  end if;
end $$;
`;

export const serverMigrations: Migration[] = [
  { number: 20, name: 'parts of servers', sql: parts },
  { number: 171, name: 'remove servers', sql: removeServer },
];
