/**
 * Database functions over several rows for posts: tasks that an instance sends to a legacy agent by
 * one request (docs/design.md section 5, "Legacy agents"). Called by
 * `lib/control/legacy/post-store.ts`.
 */

/**
 * `posted_by` is the run that posts, or has posted, the present attempt; null for an attempt sent
 * over a session. A posted task never returns to the queue: a legacy agent cannot say whether it
 * ran.
 */
const postedBy = `
alter table cnapi_tasks add column if not exists posted_by uuid;
create index if not exists cnapi_tasks_posted on cnapi_tasks (posted_by) where state = 'claimed' and posted_by is not null;
`;

/**
 * Gives queued tasks of servers that run with a legacy agent (of these servers, or of all) to one
 * live run. The roster row is locked against the accept of a session and against other claims for
 * the same server. So its bounds hold over all instances: p_most_of_server tasks posted and not
 * ended, with p_bytes_of_server of params. Returns the tasks to post, and 'full' for each server
 * that has some left.
 *
 * The run is read without a lock. If it dies at that moment, its posts are moved or ended like
 * those of any dead run.
 */
const claimPosts = `
create function cnapi_claim_posts(
  p_run uuid, p_servers uuid[], p_most_of_server int, p_bytes_of_server bigint, p_most int, p_bytes bigint
) returns table (
  what text, id uuid, server_uuid uuid, attempt int, name text, params json, params_bytes int, timeout_ms int, req_id text
) language plpgsql volatile as $$
#variable_conflict use_column
declare
  wanted uuid[] := array(
    select distinct t.server_uuid from cnapi_tasks t
      where t.state = 'queued' and (p_servers is null or t.server_uuid = any (p_servers)));
  held uuid[];
  mine record;
  picked uuid[];
  room int;
  room_bytes bigint;
  moment timestamptz;
begin
  held := array(
    select r.server_uuid from cnapi_roster_authority r
      where r.server_uuid = any (wanted) and r.run is null and r.status = 'running'
        and p_most_of_server > (
          select count(*) from cnapi_tasks t
            where t.server_uuid = r.server_uuid and t.state = 'claimed' and t.posted_by is not null)
      order by r.server_uuid limit p_most
      for no key update of r);
  if not exists (select 1 from cnapi_instances i where i.run = p_run and i.state = 'live') then
    return;
  end if;
  moment := cnapi_now();
  for mine in select r.server_uuid, r.epoch from cnapi_roster_authority r where r.server_uuid = any (held)
  loop
    select least(p_most, p_most_of_server - count(*)), least(p_bytes, p_bytes_of_server - coalesce(sum(t.params_bytes), 0))
      into room, room_bytes
      from cnapi_tasks t where t.server_uuid = mine.server_uuid and t.state = 'claimed' and t.posted_by is not null;
    picked := array(
      select t.id from cnapi_tasks t where t.state = 'queued' and t.id = any (array(
        select first.id from (
          select q.id, sum(q.params_bytes) over (order by q.queued_at, q.id) - q.params_bytes as bytes_before
            from (select * from cnapi_tasks t where t.server_uuid = mine.server_uuid and t.state = 'queued'
              order by t.queued_at, t.id limit greatest(room, 0)) as q
        ) as first where first.bytes_before < room_bytes))
        for update skip locked);
    p_most := p_most - cardinality(picked);
    p_bytes := p_bytes - (select coalesce(sum(t.params_bytes), 0) from cnapi_tasks t where t.id = any (picked));
    return query
      with posted as (
        update cnapi_tasks t
          set state = 'claimed', attempt = t.attempt + 1, epoch = mine.epoch, journal_id = p_run, posted_by = p_run,
            claimed_at = moment, sent_at = moment, cancel_sent_at = null
          where t.id = any (picked)
          returning t.*
      )
      select 'post', s.id, s.server_uuid, s.attempt, s.name, s.params, s.params_bytes, s.timeout_ms, s.req_id
        from posted s order by s.queued_at, s.id;
    return query
      select 'full', null::uuid, mine.server_uuid, 0, '', '{}'::json, 0, 0, null::text
        where exists (select 1 from cnapi_tasks t where t.server_uuid = mine.server_uuid and t.state = 'queued');
  end loop;
end $$;
`;

/**
 * Ends the posts of a dead run, because no process will receive their outcome. A run that was
 * declared dead has p_grace_ms to notice it and to move its posts to a new run. Checks twice: the
 * row may have been moved during the lock wait. Any instance calls it; locked rows are left for the
 * next call.
 */
const endDeadPosts = `
-- Whether this run may still hear how what it posted ends.
create function cnapi_hears_posts(p_run uuid, p_moment timestamptz, p_grace_ms int) returns boolean
language sql stable as $$
  select exists (
    select 1 from cnapi_instances i
      where i.run = p_run
        and (i.state = 'live' or (i.end_reason = 'lapsed' and i.ended_at > p_moment - p_grace_ms * interval '1 ms')))
$$;

create function cnapi_end_dead_posts(p_grace_ms int, p_error text, p_most int) returns setof uuid
language plpgsql volatile as $$
declare
  moment timestamptz := cnapi_now();
  picked uuid[];
begin
  picked := array(
    select t.id from cnapi_tasks t
      where t.state = 'claimed' and t.posted_by is not null and not cnapi_hears_posts(t.posted_by, moment, p_grace_ms)
      order by t.id limit p_most
      for update skip locked);
  return query
    update cnapi_tasks t set state = 'ended', outcome = 'failure', error = p_error::json
      where t.id = any (picked) and t.state = 'claimed' and t.posted_by is not null
        and not cnapi_hears_posts(t.posted_by, moment, p_grace_ms)
      returning t.id;
end $$;
`;

export const posts = postedBy + claimPosts + endDeadPosts;
