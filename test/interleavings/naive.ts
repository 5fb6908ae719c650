/**
 * Accept, claim and release as written by someone who trusts a statement to see one moment: a CTE
 * reads the guard, and the row is written by its result. Deliberate defects, in a test's database
 * only; `defects.ts` applies them.
 */

/**
 * Replaces the text of `acceptSessions`. Its last parameters are at the end only to have a known
 * type.
 */
export const NAIVE_ACCEPT = `
  with hello as (
    select * from unnest($1::uuid[], $2::bigint[], $3::uuid[], $4::bigint[], $5::uuid[])
      as hello (server_uuid, epoch, incarnation, conn, journal_id)
  ), before as (
    select * from cnapi_roster_authority where server_uuid = any ($1::uuid[])
  ), wanted as (
    select hello.*, greatest(coalesce(before.epoch, 0), hello.epoch) + 1 as next_epoch
    from hello left join before using (server_uuid)
    where hello.epoch <= coalesce(before.epoch, 0) + $9::bigint
      and (before.server_uuid is null or case when before.incarnation is not distinct from hello.incarnation
        then before.conn < hello.conn
        else before.incarnation is null or before.status = 'unknown' or before.run is null
          or before.incarnation = $8::uuid end)
  ), accepted as (
    insert into cnapi_roster_authority as row
      (server_uuid, cnapi_uuid, run, epoch, status, reason, since, decided_by, incarnation, conn, journal_id)
    select server_uuid, $6::uuid, $7::uuid, next_epoch, 'running', 'connected', cnapi_now(), $6::uuid, incarnation, conn,
      journal_id
    from wanted order by server_uuid
    on conflict (server_uuid) do update set cnapi_uuid = excluded.cnapi_uuid, run = excluded.run, epoch = excluded.epoch,
      status = 'running', reason = 'connected', since = excluded.since, decided_by = excluded.decided_by,
      incarnation = excluded.incarnation, conn = excluded.conn, journal_id = excluded.journal_id
    returning server_uuid, epoch
  )
  select accepted.server_uuid, accepted.epoch, before.run as previous_run, false as is_alternating
  from accepted left join before using (server_uuid)`;

/** Replaces the body of \`cnapi_claim_for_sessions\`; without limits and cancels. */
export const NAIVE_CLAIM = `
#variable_conflict use_column
begin
  return query
    with mine as (
      select m.* from unnest(p_servers, p_epochs, p_journals) as m (server_uuid, epoch, journal_id)
        join cnapi_roster_authority r on r.server_uuid = m.server_uuid and r.epoch = m.epoch
        where r.run = p_run and r.status = 'running'
    ), picked as (
      select t.id, mine.epoch, mine.journal_id from cnapi_tasks t join mine on mine.server_uuid = t.server_uuid
        where t.state = 'queued' order by t.queued_at, t.id
    )
    update cnapi_tasks t
      set state = 'claimed', attempt = t.attempt + 1, epoch = picked.epoch, journal_id = picked.journal_id,
        claimed_at = cnapi_now(), sent_at = cnapi_now()
      from picked where t.id = picked.id
      returning 'send', t.id, t.server_uuid, t.attempt, t.epoch, t.params_bytes;
end`;

/**
 * Replaces the body of \`cnapi_release_ticket\`: finishes the ticket and activates the next one in
 * one statement.
 */
export const NAIVE_RELEASE = `
#variable_conflict use_column
begin
  return query
    with done as (
      update cnapi_waitlist_tickets t set status = 'finished', updated_at = cnapi_now()
        where t.uuid = p_uuid and t.status in ('queued', 'active')
        returning t.uuid, t.queue, t.status, t.active_at
    ), next as (
      select t.uuid from cnapi_waitlist_tickets t join done on done.queue = t.queue
        where t.status = 'queued' and done.active_at is not null order by t.place limit 1
    ), moved as (
      update cnapi_waitlist_tickets t set status = 'active', updated_at = cnapi_now(), active_at = cnapi_now()
        from next where t.uuid = next.uuid
        returning t.uuid, t.status
    ), emptied as (
      delete from cnapi_waitlist_queues q using done
        where q.key = done.queue and not exists (select 1 from cnapi_waitlist_tickets t
          where t.queue = done.queue and t.status in ('queued', 'active') and t.uuid <> done.uuid)
    )
    select done.uuid, done.status, true from done union all select moved.uuid, moved.status, true from moved;
  if not found then
    return query select t.uuid, t.status, false from cnapi_waitlist_tickets t where t.uuid = p_uuid;
  end if;
end`;
