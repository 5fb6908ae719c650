-- When each chore was last begun. The instance that updates a chore's row carries it out.
create table cnapi_chores (
  name text primary key,
  begun_at timestamptz not null
);
