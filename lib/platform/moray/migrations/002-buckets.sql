-- The declaration of each bucket of documents. Its table is made from the declaration
-- (bucket-schema.ts), so the tables of documents are in no migration.

create table cnapi_buckets (
  name text primary key,
  version int not null,
  indexes jsonb not null
);

-- Makes the etags of documents unique.
create sequence cnapi_etag;

-- The value of an indexed field of type timestamp; null if it is none. Effectively immutable: only
-- texts with an offset of their own are read (field-type.ts).
create function cnapi_parse_timestamp(text) returns timestamptz
language plpgsql immutable strict as $$
begin
  return case when $1 ~ '^\d{4}-\d\d-\d\d(T\d\d:\d\d.*(Z|[+-]\d\d:\d\d))?$'
    then (case when $1 ~ 'T' then $1 else $1 || 'T00:00:00Z' end)::timestamptz end;
exception when others then
  return null;
end $$;
