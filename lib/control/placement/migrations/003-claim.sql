-- Claims room for a VM on one server, if all still fits there. Allocations on one server run one
-- after the other: each locks the server for its transaction, and then reads afresh what is on it
-- (law 5). Nothing else waits for this lock, and its holder waits at most for the row of the claim.
--
-- p_most_…: how much of each may be on the server afterwards; null is no limit.
-- p_instead: a server on which this VM has a claim that the caller has given up.
--
-- Returns no row if another request changed the claim of this VM at the same moment (try again),
-- else the outcome:
--
--   claimed  on p_server
--   known    an equal request has claimed room before, on the server that is returned
--   full     it does not fit any more; nothing was changed
--   gone     there is no such server any more
create function cnapi_claim_placement(
  p_vm text, p_server uuid, p_owner text, p_ram float8, p_disk float8, p_cpu float8,
  p_most_vms float8, p_most_ram float8, p_most_disk float8, p_most_cpu float8,
  p_instead uuid, p_expires_in_ms bigint
) returns table (server_uuid uuid, outcome text) language plpgsql volatile as $$
#variable_conflict use_column
declare
  used record;
  moment timestamptz;
begin
  perform pg_advisory_xact_lock(hashtextextended('placement ' || p_server, 0));
  moment := cnapi_now();
  return query
    select c.server_uuid, 'known' from cnapi_placement_claims c
      where c.vm_uuid = p_vm and c.expires_at > moment
        and c.server_uuid is distinct from p_instead and c.server_uuid <> p_server
        and (c.owner_uuid, c.ram, c.disk, c.cpu) = (p_owner, p_ram, p_disk, p_cpu);
  if found then
    return;
  elsif not exists (select 1 from cnapi_servers s where s.uuid = p_server) then
    return query select p_server, 'gone';
    return;
  end if;
  select coalesce(sum(l.vms), 0) as vms, coalesce(sum(l.ram), 0) as ram,
      coalesce(sum(l.disk), 0) as disk, coalesce(sum(l.cpu), 0) as cpu,
      coalesce(sum(l.uncapped), 0) as uncapped
    into used from cnapi_placement_load(array[p_server], p_vm, p_owner, '{}') l;
  if used.vms + 1 > p_most_vms or used.ram + p_ram > p_most_ram
    or (p_disk > 0 and used.disk + p_disk > p_most_disk)
    or (p_cpu > 0 and p_most_cpu is not null
      and (used.uncapped > 0 or used.cpu + p_cpu > p_most_cpu)) then
    return query select p_server, 'full';
    return;
  end if;
  return query
    insert into cnapi_placement_claims as c
        (vm_uuid, server_uuid, owner_uuid, ram, disk, cpu, created_at, expires_at)
      values (p_vm, p_server, p_owner, p_ram, p_disk, p_cpu, moment,
        moment + p_expires_in_ms * interval '1 ms')
      on conflict (vm_uuid) do update
        set server_uuid = excluded.server_uuid, owner_uuid = excluded.owner_uuid,
          ram = excluded.ram, disk = excluded.disk, cpu = excluded.cpu,
          created_at = excluded.created_at, expires_at = excluded.expires_at
        where c.expires_at <= moment or c.server_uuid in (p_server, p_instead)
          or (c.owner_uuid, c.ram, c.disk, c.cpu)
            <> (excluded.owner_uuid, excluded.ram, excluded.disk, excluded.cpu)
      returning c.server_uuid, 'claimed';
end $$;
