/** Migrations 1-9, on which all other tables and statements build. */
import type { Migration } from '../postgres/migrations.ts';

export const morayMigrations: Migration[] = [
  {
    number: 1,
    name: 'clock',
    // The only source of time in SQL. A simulation replaces it. STABLE lets the planner call it
    // once per statement.
    sql: `
      create or replace function cnapi_now() returns timestamptz
      language sql stable
      as $$ select clock_timestamp() $$`,
  },
  {
    number: 2,
    name: 'buckets',
    // Effectively immutable: it only gets texts with an offset of their own (see field-type.ts).
    sql: `
      create table cnapi_buckets (
        name text primary key,
        version int not null,
        indexes jsonb not null
      );
      create sequence cnapi_etag;
      create function cnapi_parse_timestamp(text) returns timestamptz
      language plpgsql immutable strict
      as $$
        begin
          return case when $1 ~ '^\\d{4}-\\d\\d-\\d\\d(T\\d\\d:\\d\\d.*(Z|[+-]\\d\\d:\\d\\d))?$'
            then (case when $1 ~ 'T' then $1 else $1 || 'T00:00:00Z' end)::timestamptz end;
        exception when others then
          return null;
        end
      $$`,
  },
];
