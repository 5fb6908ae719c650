/**
 * The claim of tasks as version 0.1 calls it, under its migration: instances of both versions use
 * one database during an upgrade. It returns params while it holds locks; `claim-function.ts` has
 * the current claim.
 */
export const claimPassedOverFunction = `
create or replace function cnapi_claim_tasks(
  p_run uuid, p_servers uuid[], p_epochs bigint[], p_journals uuid[], p_overdue_ms int, p_resend_ms int,
  p_most_claimed int, p_most int, p_most_bytes int, p_most_all int, p_most_all_bytes int, p_most_cancels int
) returns table (
  what text, id uuid, server_uuid uuid, attempt int, epoch bigint, name text, params json, timeout_ms int, req_id text
) language plpgsql volatile as $$
#variable_conflict use_column
declare
  wanted uuid[] := array(
    select distinct t.server_uuid from cnapi_tasks t where t.state = 'queued' and t.server_uuid = any (p_servers));
  held uuid[];
  wished uuid[];
  picked uuid[];
  room int;
  room_bytes bigint;
  given int := 0;
  given_bytes bigint := 0;
  is_full boolean;
  mine record;
  moment timestamptz;
begin
  held := array(
    select r.server_uuid
      from cnapi_roster_authority r
      join unnest(p_servers, p_epochs) as m (server_uuid, epoch) on m.server_uuid = r.server_uuid and m.epoch = r.epoch
      where r.server_uuid = any (wanted) and r.run = p_run and r.status = 'running'
      order by r.server_uuid
      for share of r);
  moment := cnapi_now();
  for mine in
    select * from unnest(p_servers, p_epochs, p_journals) as m (server_uuid, epoch, journal_id)
      where m.server_uuid = any (held)
  loop
    is_full := false;
    wished := '{}';
    picked := '{}';
    if given < p_most_all and given_bytes < p_most_all_bytes then
      select p_most_claimed - count(*), p_most_bytes - coalesce(sum(t.params_bytes) filter (where t.accepted_at is null), 0)
        into room, room_bytes
        from cnapi_tasks t where t.server_uuid = mine.server_uuid and t.state = 'claimed';
      wished := array(
        select first.id from (
          select q.id, sum(q.params_bytes) over (order by q.queued_at, q.id) - q.params_bytes as bytes_before
            from (select * from cnapi_tasks t where t.server_uuid = mine.server_uuid and t.state = 'queued'
              order by t.queued_at, t.id limit least(p_most, greatest(room, 0))) as q
        ) as first where first.bytes_before < room_bytes);
      picked := array(
        select t.id from cnapi_tasks t where t.state = 'queued' and t.id = any (wished) for update skip locked);
      is_full := cardinality(wished) < p_most;
      given := given + cardinality(picked);
      given_bytes := given_bytes + (select coalesce(sum(t.params_bytes), 0) from cnapi_tasks t where t.id = any (picked));
      return query
        with sent as (
          update cnapi_tasks t
            set state = 'claimed', attempt = t.attempt + 1, epoch = mine.epoch, journal_id = mine.journal_id,
              claimed_at = moment, sent_at = moment, cancel_sent_at = null
            where t.id = any (picked)
            returning t.*
        )
        select 'send', s.id, s.server_uuid, s.attempt, s.epoch, s.name, s.params, s.timeout_ms, s.req_id
          from sent s order by s.queued_at, s.id;
    end if;
    if cardinality(picked) < cardinality(wished) then
      is_full := is_full or cardinality(picked) = 0;
      return query
        select 'later', null::uuid, mine.server_uuid, 0, mine.epoch, '', '{}'::json, 0, null::text
          where exists (select 1 from cnapi_tasks t
            where t.id = any (wished) and not t.id = any (picked) and t.state = 'queued');
    end if;
    return query
      select case when is_full then 'full' else 'more' end, null::uuid, mine.server_uuid, 0, mine.epoch, '', '{}'::json, 0,
          null::text
        where exists (select 1 from cnapi_tasks t where t.server_uuid = mine.server_uuid and t.state = 'queued');
  end loop;
  declare
    due_tasks uuid[] := array(
      select due.id from unnest(p_servers, p_epochs) as m (server_uuid, epoch)
        cross join lateral (
          select t.id, t.cancel_sent_at from cnapi_tasks t
            where t.server_uuid = m.server_uuid and t.epoch = m.epoch and t.state = 'claimed'
              and (t.cancel_requested_at is not null
                or coalesce(t.started_at, t.accepted_at, t.claimed_at)
                  < moment - (t.timeout_ms + p_overdue_ms) * interval '1 ms')
              and (t.cancel_sent_at is null or t.cancel_sent_at < moment - p_resend_ms * interval '1 ms')
            order by t.cancel_sent_at nulls first, t.id limit p_most
        ) as due
        order by due.cancel_sent_at nulls first, due.id limit p_most_cancels);
  begin
    if cardinality(due_tasks) = 0 then
      return;
    end if;
    picked := array(
      select t.id from cnapi_tasks t where t.id = any (due_tasks) and t.state = 'claimed' for update skip locked);
    return query
      update cnapi_tasks t set cancel_sent_at = moment
        where t.id = any (picked)
        returning 'cancel', t.id, t.server_uuid, t.attempt, t.epoch, t.name, '{}'::json, t.timeout_ms, t.req_id;
    return query
      select distinct on (t.server_uuid) 'later', null::uuid, t.server_uuid, 0, t.epoch, '', '{}'::json, 0, null::text
        from cnapi_tasks t where t.id = any (due_tasks) and not t.id = any (picked) and t.state = 'claimed';
  end;
end $$;
`;
