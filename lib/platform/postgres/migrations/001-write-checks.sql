-- Into this table the check whether the database takes writes (write-health.ts) writes test pages,
-- which it rolls back: the table never has a row. The filler is stored uncompressed, so that it
-- fills its page. (`create table` knows `storage` only since Postgres 16.)
create table cnapi_write_checks (filler text not null);
alter table cnapi_write_checks alter column filler set storage plain;
