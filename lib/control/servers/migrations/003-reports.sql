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
--   locked     somebody else is changing its report; nothing was changed, try again
--
-- The documents are locked so that a removal waits until their parts are stored, and then deletes
-- them. The roster's epoch is read without a lock. A report that was stored while the epoch rose is
-- as if it had been stored before; after a report of the new session it cannot be stored, because
-- the row has the epoch of its last report.
create function cnapi_store_reports(
  p_servers uuid[], p_epochs bigint[], p_vms text[], p_memory text[], p_disk text[]
) returns table (server_uuid uuid, outcome text)
language plpgsql volatile as $$
#variable_conflict use_column
declare
  existing uuid[];
  handled uuid[] := '{}';
  moment timestamptz;
  one record;
  kept jsonb;
begin
  existing := array(
    select s.uuid from cnapi_servers s where s.uuid = any (p_servers)
      order by s.uuid for key share of s);
  insert into cnapi_server_reports (server_uuid, vms, memory, disk, stored_at)
    select e, '{}', '{}', '{}', cnapi_now() from unnest(existing) as e
      where not exists (select 1 from cnapi_server_reports r where r.server_uuid = e)
      order by e
    on conflict (server_uuid) do nothing;
  moment := cnapi_now();
  for one in
    select r.server_uuid, r.vms as old_vms, r.destroyed, r.epoch as stored_epoch, n.epoch,
        a.epoch as current_epoch, n.vms::jsonb as vms, n.memory::jsonb as memory,
        n.disk::jsonb as disk
      from unnest(p_servers, p_epochs, p_vms, p_memory, p_disk)
        as n (server_uuid, epoch, vms, memory, disk)
      join cnapi_server_reports r on r.server_uuid = n.server_uuid
      left join cnapi_roster_authority a on a.server_uuid = n.server_uuid
      where n.server_uuid = any (existing)
      order by r.server_uuid for update of r skip locked
  loop
    handled := handled || one.server_uuid;
    server_uuid := one.server_uuid;
    outcome := 'outdated';
    if one.epoch is null
      or (one.epoch is not distinct from one.current_epoch
        and one.epoch >= coalesce(one.stored_epoch, 0)) then
      kept := one.old_vms;
      -- Also if the rows are incomplete: another server may have had a VM with the same uuid.
      if one.vms <> one.old_vms or cnapi_count_vms(one.server_uuid) <> (
          select count(*) from jsonb_object_keys(one.vms)) then
        kept := cnapi_store_vms(one.server_uuid, one.vms, one.destroyed, moment);
      end if;
      update cnapi_server_reports r
        set vms = kept, memory = r.memory || one.memory, disk = r.disk || one.disk,
            epoch = coalesce(one.epoch, r.epoch), stored_at = moment,
            destroyed = case when r.destroyed = '{}' then r.destroyed else (
              select coalesce(jsonb_object_agg(d.key, d.value), '{}') from jsonb_each(r.destroyed) as d
                where (d.value #>> '{}')::timestamptz > moment - interval '1 minute') end
        where r.server_uuid = one.server_uuid;
      outcome := 'stored';
    end if;
    return next;
  end loop;
  return query select e, 'locked' from unnest(existing) as e where e <> all (handled);
end $$;
