-- Claims room for a VM on one server, if all still fits there. Allocations on one server run one
-- after the other: each locks the server for its transaction, and then reads afresh what is on it
-- (law 5). Nothing else waits for this lock, and its holder waits for a row for 200 ms at most.
--
-- p_max_…: how much of each may be on the server afterwards; null is no limit.
-- p_instead: a server on which this VM has a claim that the caller has given up.
--
-- Returns no row if another request changes the claim of this VM at the same moment (try again),
-- else the outcome:
--
--   claimed   on p_server
--   known     an equal request has claimed room before, on the server that is returned
--   creating  the VM is being created on the server that is returned, where the caller does not want
--             it, or with another size: its room cannot move
--   full      it does not fit any more; nothing was changed
--   gone      there is no such server any more
create function cnapi_claim_placement(
  p_vm text, p_server uuid, p_owner text, p_ram float8, p_disk float8, p_cpu float8,
  p_max_vms float8, p_max_ram float8, p_max_disk float8, p_max_cpu float8,
  p_instead uuid, p_expires_in_ms bigint
) returns table (server_uuid uuid, outcome text) language plpgsql volatile as $$
#variable_conflict use_column
declare
  used record;
  moment timestamptz;
  held cnapi_placement_claims;
  is_equal boolean;
  is_creating boolean;
begin
  perform pg_advisory_xact_lock(hashtextextended('placement ' || p_server, 0));
  perform set_config('lock_timeout', '200ms', true);
  select * into held from cnapi_placement_claims c where c.vm_uuid = p_vm for update;
  moment := cnapi_now();
  is_equal := (held.owner_uuid, held.ram, held.disk, held.cpu) = (p_owner, p_ram, p_disk, p_cpu);
  is_creating := held.vm_uuid is not null and cnapi_vm_is_being_created(p_vm, held.server_uuid);
  if is_equal and held.server_uuid <> p_server and held.server_uuid is distinct from p_instead
    and (held.expires_at > moment or is_creating) then
    return query select held.server_uuid, 'known';
    return;
  elsif is_creating and (held.server_uuid <> p_server or not is_equal) then
    return query select held.server_uuid, 'creating';
    return;
  elsif not exists (select 1 from cnapi_servers s where s.uuid = p_server) then
    return query select p_server, 'gone';
    return;
  end if;
  select coalesce(sum(l.vms), 0) as vms, coalesce(sum(l.ram), 0) as ram,
      coalesce(sum(l.disk), 0) as disk, coalesce(sum(l.cpu), 0) as cpu,
      coalesce(sum(l.uncapped), 0) as uncapped
    into used from cnapi_placement_load(array[p_server], p_vm, p_owner, '{}') l;
  if used.vms + 1 > p_max_vms or used.ram + p_ram > p_max_ram
    or (p_disk > 0 and used.disk + p_disk > p_max_disk)
    or (p_cpu > 0 and p_max_cpu is not null
      and (used.uncapped > 0 or used.cpu + p_cpu > p_max_cpu)) then
    return query select p_server, 'full';
    return;
  end if;
  if held.vm_uuid is not null then
    update cnapi_placement_claims c
      set server_uuid = p_server, owner_uuid = p_owner, ram = p_ram, disk = p_disk, cpu = p_cpu,
        created_at = moment, expires_at = moment + p_expires_in_ms * interval '1 ms'
      where c.vm_uuid = p_vm;
    return query select p_server, 'claimed';
    return;
  end if;
  -- Another request for this VM may have inserted its claim since the look at it above.
  return query
    insert into cnapi_placement_claims as c
        (vm_uuid, server_uuid, owner_uuid, ram, disk, cpu, created_at, expires_at)
      values (p_vm, p_server, p_owner, p_ram, p_disk, p_cpu, moment,
        moment + p_expires_in_ms * interval '1 ms')
      on conflict (vm_uuid) do nothing
      returning c.server_uuid, 'claimed';
exception when lock_not_available then
  return;
end $$;
