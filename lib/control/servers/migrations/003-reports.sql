-- Orders the writes of a server's VMs: a transaction that changes them locks the report first, and
-- the document before, so that a removal of the server waits and then deletes all. Creates the
-- report if there is none. False: there is no such server.
create function cnapi_lock_report(p_server uuid) returns boolean language plpgsql volatile as $$
begin
  perform 1 from cnapi_servers s where s.uuid = p_server for key share;
  if not found then
    return false;
  end if;
  insert into cnapi_server_reports (server_uuid, vms, memory, disk, stored_at)
    values (p_server, '{}', '{}', '{}', cnapi_now())
    on conflict (server_uuid) do nothing;
  if not found then
    perform 1 from cnapi_server_reports r where r.server_uuid = p_server for update;
  end if;
  return true;
end $$;

-- Locks the reports of these servers, in the order of their uuids, for statements that end tasks of
-- VMs; their triggers then wait for none of them. Returns the servers that it could not lock,
-- because another transaction changes their reports or removes them. A server without a document
-- has no report and needs no lock.
create function cnapi_lock_reports(p_servers uuid[]) returns uuid[]
language plpgsql volatile as $$
declare
  documents uuid[];
  held uuid[];
begin
  documents := array(
    select s.uuid from cnapi_servers s where s.uuid = any (p_servers)
      order by s.uuid for key share of s skip locked);
  insert into cnapi_server_reports (server_uuid, vms, memory, disk, stored_at)
    select d, '{}', '{}', '{}', cnapi_now() from unnest(documents) as d
      where not exists (select 1 from cnapi_server_reports r where r.server_uuid = d)
      order by d
    on conflict (server_uuid) do nothing;
  held := array(
    select r.server_uuid from cnapi_server_reports r where r.server_uuid = any (documents)
      order by r.server_uuid for update skip locked);
  return array(
    select s.uuid from cnapi_servers s where s.uuid = any (p_servers) and s.uuid <> all (held));
end $$;

-- A task has changed one VM in the report of its server, or destroyed it (p_vm is null). The caller
-- has locked the report.
create function cnapi_change_reported_vm(p_server uuid, p_vm_uuid text, p_vm jsonb) returns void
language sql volatile as $$
  update cnapi_server_reports r
    set vms = case when p_vm is null then r.vms - p_vm_uuid
          else r.vms || jsonb_build_object(p_vm_uuid, p_vm) end,
        destroyed = case when p_vm is null
          then r.destroyed || jsonb_build_object(p_vm_uuid, cnapi_now())
          else r.destroyed - p_vm_uuid end
    where r.server_uuid = p_server
$$;

-- Stores reports of servers, each server once; p_epochs: that of the session that sent the report,
-- null for a legacy agent. Figures that a report leaves out keep their values. Returns for each
-- server that exists what happened:
--
--   stored
--   outdated   the server has a newer session; nothing was changed
--   locked     somebody else is changing its report or one of its VMs; nothing was changed, try again
--
-- The documents are locked so that a removal waits until their parts are stored, and then deletes
-- them. The roster's epoch is read without a lock. A report that was stored while the epoch rose is
-- as if it had been stored before; after a report of the new session it cannot be stored, because
-- the row has the epoch of its last report.
--
-- All servers report all the time, and their VMs seldom change. So one statement writes the figures
-- of all of them, and another one the VMs of all servers whose VMs have changed, so that the rows of
-- VMs are written in one order.
create function cnapi_store_reports(
  p_servers uuid[], p_epochs bigint[], p_vms text[], p_memory text[], p_disk text[]
) returns table (server_uuid uuid, outcome text)
language plpgsql volatile as $$
#variable_conflict use_column
declare
  existing uuid[];
  held uuid[];
  current uuid[];
  -- A lookup in a long list costs more than all the rest, and nearly always all are in it.
  are_held boolean;
  are_current boolean;
  moment timestamptz;
  changed uuid[];
  changed_vms jsonb[];
  changed_destroyed jsonb[];
  stored uuid[];
  stored_vms jsonb[];
begin
  existing := array(
    select s.uuid from cnapi_servers s where s.uuid = any (p_servers)
      order by s.uuid for key share of s);
  insert into cnapi_server_reports (server_uuid, vms, memory, disk, stored_at)
    select e, '{}', '{}', '{}', cnapi_now() from unnest(existing) as e
      where not exists (select 1 from cnapi_server_reports r where r.server_uuid = e)
      order by e
    on conflict (server_uuid) do nothing;
  held := array(
    select r.server_uuid from cnapi_server_reports r where r.server_uuid = any (existing)
      order by r.server_uuid for update skip locked);
  are_held := cardinality(held) = cardinality(p_servers);
  current := array(
    select n.server_uuid
      from unnest(p_servers, p_epochs) as n (server_uuid, epoch)
      join cnapi_server_reports r on r.server_uuid = n.server_uuid
      left join cnapi_roster_authority a on a.server_uuid = n.server_uuid
      where (are_held or n.server_uuid = any (held))
        and (n.epoch is null
          or (n.epoch is not distinct from a.epoch and n.epoch >= coalesce(r.epoch, 0))));
  are_current := cardinality(current) = cardinality(p_servers);
  moment := cnapi_now();
  -- Few of the reports have other VMs than the ones before. Also if the rows are incomplete: another
  -- server may have had a VM with the same uuid.
  select array_agg(n.server_uuid), array_agg(n.vms), array_agg(r.destroyed)
    into changed, changed_vms, changed_destroyed
    from (
      select m.server_uuid, m.vms::jsonb as vms
        from unnest(p_servers, p_vms) as m (server_uuid, vms)
        where are_current or m.server_uuid = any (current)
        offset 0) as n
    join cnapi_server_reports r on r.server_uuid = n.server_uuid
    left join cnapi_count_vms(current) as c on c.server_uuid = n.server_uuid
    where n.vms <> r.vms
      or coalesce(c.vms, 0) <> (select count(*) from jsonb_object_keys(n.vms));
  if changed is not null then
    select array_agg(s.server_uuid), array_agg(s.vms) into stored, stored_vms
      from cnapi_store_vms_of(changed, changed_vms, changed_destroyed, moment) as s;
    update cnapi_server_reports r set vms = s.vms
      from unnest(stored, stored_vms) as s (server_uuid, vms)
      where r.server_uuid = s.server_uuid;
    if coalesce(cardinality(stored), 0) < cardinality(changed) then
      changed := array(
        select c from unnest(changed) as c except select s from unnest(stored) as s);
      held := array(select h from unnest(held) as h except select c from unnest(changed) as c);
      current := array(select u from unnest(current) as u except select c from unnest(changed) as c);
      are_held := false;
      are_current := false;
    end if;
  end if;
  update cnapi_server_reports r
    set memory = r.memory || n.memory::jsonb, disk = r.disk || n.disk::jsonb,
        epoch = coalesce(n.epoch, r.epoch), stored_at = moment,
        destroyed = case when r.destroyed = '{}' then r.destroyed else (
          select coalesce(jsonb_object_agg(d.key, d.value), '{}') from jsonb_each(r.destroyed) as d
            where (d.value #>> '{}')::timestamptz > moment - interval '1 minute') end
    from unnest(p_servers, p_epochs, p_memory, p_disk) as n (server_uuid, epoch, memory, disk)
    where r.server_uuid = n.server_uuid and (are_current or n.server_uuid = any (current));
  return query
    select h, case when are_current or h = any (current) then 'stored' else 'outdated' end
      from unnest(held) as h
    union all
    select e, 'locked' from unnest(existing) as e where not are_held and e <> all (held);
end $$;
