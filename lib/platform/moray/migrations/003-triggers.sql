-- The trigger of each bucket that has one (bucket-schema.ts): the function's name, then its
-- arguments.
alter table cnapi_buckets add column on_change jsonb;
