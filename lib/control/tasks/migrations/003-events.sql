-- What happened to each task, in the order of `seq`. For a piece of output, `first_byte` and
-- `bytes` give its place in its stream, and `cut` the number of bytes dropped there.
create table cnapi_task_events (
  task_id uuid not null references cnapi_tasks (id) on delete cascade,
  seq int not null,
  attempt int not null,
  name text not null,
  stored_at timestamptz not null,
  reported_at text,
  data json,
  stream text,
  first_byte bigint,
  bytes int not null default 0,
  cut bigint not null default 0,
  primary key (task_id, seq)
);
