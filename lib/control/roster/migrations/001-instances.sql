-- One row for each run of an instance, with its lease: `beat` rises while the run lives.
--
-- draining_since    the instance is about to leave and accepts no more agents
-- admission         whether it admits new agents: `open`, `paced` or `closed`; null until it says so
-- latest_return_at  the latest time at which it told an agent to return; null if it told none. It
--                   counts after the run's end as well (`readAwaitedReturns`)
create table cnapi_instances (
  run uuid primary key,
  cnapi_uuid uuid not null,
  url text not null,
  host text not null,
  port int not null,
  pid int not null,
  version text not null,
  state text not null default 'live' check (state in ('live', 'dead')),
  beat bigint not null default 0,
  agents int not null default 0,
  started_at timestamptz not null default cnapi_now(),
  ended_at timestamptz,
  end_reason text check (end_reason in ('stopped', 'lapsed')),
  draining_since timestamptz,
  admission text,
  latest_return_at timestamptz
);

create index cnapi_instances_live on cnapi_instances (run) where state = 'live';
