-- Duties: long-running work that one instance holds (lib/control/duty/duty.ts draws the states).

create table cnapi_duties (
  id uuid primary key,
  kind text not null,
  state text not null default 'waiting' check (state in ('waiting', 'held', 'ended')),
  -- The run that holds it.
  run uuid,
  -- Raised by each claim; (id, run, generation) is the fence of what the holder writes.
  generation int not null default 0,
  failures int not null default 0,
  -- How often in a row its holder lapsed soon after it had claimed it.
  takeovers int not null default 0,
  -- A waiting duty is not claimed between these two. Both count: when the database's clock was set
  -- back, a time in the future alone would keep it waiting for as long.
  waiting_since timestamptz not null default cnapi_now(),
  claimable_at timestamptz not null default cnapi_now(),
  created_at timestamptz not null default cnapi_now(),
  held_since timestamptz,
  ended_at timestamptz,
  check ((state = 'held') = (run is not null)),
  check ((state = 'ended') = (ended_at is not null))
) with (fillfactor = 70);
create index cnapi_duties_unfinished on cnapi_duties (claimable_at, id) where state <> 'ended';
create index cnapi_duties_held on cnapi_duties (run) where state = 'held';
create index cnapi_duties_ended on cnapi_duties (ended_at) where state = 'ended';

-- Called by the function that creates the object, so that both exist or neither. Returns those that
-- did not exist.
create function cnapi_create_duties(p_ids uuid[], p_kind text) returns setof uuid
language sql volatile as $$
  insert into cnapi_duties (id, kind) select id, p_kind from unnest(p_ids) as id order by id
    on conflict (id) do nothing
    returning id
$$;

-- Whether this run holds this generation. Locks the row against a take-over until the caller's
-- transaction ends: the first statement of each function in which a holder writes.
create function cnapi_lock_duty(p_id uuid, p_run uuid, p_generation int) returns boolean
language plpgsql volatile as $$
begin
  perform 1 from cnapi_duties d
    where d.id = p_id and d.state = 'held' and d.run = p_run and d.generation = p_generation
    for share;
  return found;
end $$;

-- The instance that carries out this duty at present; null if none does.
create function cnapi_duty_holder(p_id uuid) returns uuid language sql stable as $$
  select i.cnapi_uuid from cnapi_duties d
    join cnapi_instances i on i.run = d.run and i.state = 'live'
    where d.id = p_id and d.state = 'held'
$$;

-- Whether its holder, a run that has ended, lapsed soon after it had claimed it. The work may have
-- killed the process.
create function cnapi_duty_lapsed_soon(p_duty cnapi_duties) returns boolean
language sql stable as $$
  select exists (select 1 from cnapi_instances i where i.run = p_duty.run and i.end_reason = 'lapsed'
    and i.ended_at - p_duty.held_since < interval '10 minutes')
$$;

-- For how long a duty of a dead run is left alone, so that work that kills its process does not
-- stop all instances one after the other: not after the first such lapse, then 5 s, doubling to 5
-- min.
create function cnapi_takeover_pause(p_duty cnapi_duties) returns interval
language sql stable as $$
  select case when p_duty.takeovers = 0 or not cnapi_duty_lapsed_soon(p_duty) then interval '0'
    else least(300, 5 * 2 ^ least(p_duty.takeovers - 1, 10)) * interval '1 second' end
$$;

-- Whether the pause of a waiting duty is over.
create function cnapi_is_due_duty(p_duty cnapi_duties, p_moment timestamptz) returns boolean
language sql immutable as $$
  select p_moment < p_duty.waiting_since or p_moment >= p_duty.claimable_at
$$;

-- The runs that hold duties and have ended. Reads one row for each run that holds some, however
-- many duties it holds.
create function cnapi_ended_holders() returns uuid[]
language sql stable as $$
  with recursive holders (run) as (
    (select d.run from cnapi_duties d where d.state = 'held' order by d.run limit 1)
    union all
    select (select d.run from cnapi_duties d where d.state = 'held' and d.run > holders.run order by d.run limit 1)
      from holders where holders.run is not null
  )
  select array(select h.run from holders h where h.run is not null
    and not exists (select 1 from cnapi_instances i where i.run = h.run and i.state = 'live'))
$$;

-- Whether nobody carries out this duty, which has not ended. A dead run never becomes live again,
-- so what this says of a locked row stays true.
create function cnapi_is_free_duty(p_duty cnapi_duties, p_moment timestamptz) returns boolean
language sql stable as $$
  select case p_duty.state
    when 'waiting' then cnapi_is_due_duty(p_duty, p_moment)
    when 'held' then not exists (select 1 from cnapi_instances i where i.run = p_duty.run
      and (i.state = 'live' or p_moment >= i.ended_at and p_moment < i.ended_at + cnapi_takeover_pause(p_duty))) end
$$;

-- Gives free duties of these kinds to a live run, those that are free the longest first. The rows
-- are read again under their locks: another instance may have claimed one since this statement
-- began, under a run that was inserted since. The claiming run is read without a lock. If it dies
-- at that moment, its duties are taken over like those of any dead run.
create function cnapi_claim_duties(p_run uuid, p_kinds text[], p_most int)
returns table (id uuid, kind text, generation int, failures int, was_held boolean, takeovers int)
language plpgsql volatile as $$
#variable_conflict use_column
declare
  picked uuid[];
  left_behind uuid[];
  ended uuid[] := cnapi_ended_holders();
  moment timestamptz := cnapi_now();
begin
  picked := array(
    select d.id from cnapi_duties d
      where (d.state = 'waiting' or d.state = 'held' and d.run = any (ended)) and d.kind = any (p_kinds)
        and cnapi_is_free_duty(d, moment)
      order by d.claimable_at, d.id limit p_most
      for update of d skip locked);
  if not exists (select 1 from cnapi_instances i where i.run = p_run and i.state = 'live') then
    return;
  end if;
  moment := cnapi_now();
  left_behind := array(select d.id from cnapi_duties d where d.id = any (picked) and d.state = 'held');
  return query
    update cnapi_duties d set state = 'held', run = p_run, generation = d.generation + 1, held_since = moment,
        takeovers = case when d.state = 'waiting' then d.takeovers when cnapi_duty_lapsed_soon(d) then d.takeovers + 1 else 0 end
      where d.id = any (picked) and cnapi_is_free_duty(d, moment)
      returning d.id, d.kind, d.generation, d.failures, d.id = any (left_behind), d.takeovers;
end $$;
