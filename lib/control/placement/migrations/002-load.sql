-- A number of a report or of a ticket, which may be anything; null if it is no number. Bounded, so
-- that no sum of them is out of range: one agent's report would keep its server from being read.
create function cnapi_placement_number(p_value jsonb) returns float8 language sql immutable as $$
  select case when jsonb_typeof(p_value) = 'number' then least(greatest(p_value::float8, 0), 1e15) end
$$;

-- What is on each of these servers, or promised to it. Each VM counts once: as reported, else by its
-- claim, else by its open provisioning ticket. A failed VM with a claim is about to be made again:
-- it counts by its claim, with the larger of both disks. The VM p_vm does not count, because room is sought
-- for it. No row for a server with nothing.
--
-- vms, ram, disk, cpu  the number of VMs and the sums of their sizes; a failed VM uses only disk
-- capped, uncapped     how many have a cpu_cap, and how many have a known size and none
-- owned                how many belong to p_owner
-- named                which of the VMs p_named are there
-- is_sick              the two VMs that changed last, within a day, have both failed
--
-- The time is read in subqueries, which are evaluated once: for each VM it took most of the time.
create function cnapi_placement_load(p_servers uuid[], p_vm text, p_owner text, p_named text[])
returns table (
  server_uuid uuid, vms bigint, ram float8, disk float8, cpu float8, capped bigint, uncapped bigint,
  owned bigint, named text[], is_sick boolean
) language sql stable as $$
  with reported as (
    select v.server_uuid, v._key as vm, v._value ->> 'owner_uuid' as owner,
        v._value ->> 'state' as state, v._mtime as changed_at,
        cnapi_placement_number(v._value -> 'max_physical_memory') as ram,
        coalesce(cnapi_placement_number(v._value -> 'quota'), 0) * 1024 as disk,
        coalesce(cnapi_placement_number(v._value -> 'cpu_cap'), 0) as cpu
      from cnapi_vms v
      where v.server_uuid = any (p_servers) and v._key <> p_vm
  ), claimed as (
    select c.server_uuid, c.vm_uuid as vm, c.owner_uuid as owner, c.ram,
        greatest(c.disk, coalesce(r.disk, 0)) as disk, c.cpu
      from cnapi_placement_claims c
      left join reported r on r.vm = c.vm_uuid and r.server_uuid = c.server_uuid
      where c.server_uuid = any (p_servers) and c.vm_uuid <> p_vm
        and (r.vm is null or r.ram is null or r.state = 'failed')
        and (c.expires_at > (select cnapi_now()) or (r.vm is not null and r.ram is null))
  ), ticketed as (
    select distinct on (t.server_uuid, t.id) t.server_uuid::uuid as server_uuid, t.id as vm,
        t.extra ->> 'owner_uuid' as owner,
        coalesce(cnapi_placement_number((t.extra -> 'max_physical_memory')::jsonb), 0) as ram,
        coalesce(cnapi_placement_number((t.extra -> 'quota')::jsonb), 0) * 1024 as disk,
        coalesce(cnapi_placement_number((t.extra -> 'cpu_cap')::jsonb), 0) as cpu
      from cnapi_waitlist_tickets t
      where t.server_uuid = any (p_servers::text[]) and (t.status || '') in ('queued', 'active')
        and t.scope = 'vm' and t.action = 'provision' and t.id <> p_vm
        and not exists (
          select 1 from reported r
            where r.vm = t.id and r.server_uuid::text = t.server_uuid and r.ram is not null)
        and not exists (
          select 1 from claimed c where c.vm = t.id and c.server_uuid::text = t.server_uuid)
      order by t.server_uuid, t.id, t.created_at
  ), present as (
    select r.server_uuid, r.vm, r.owner, r.state, r.changed_at, r.ram, r.disk, r.cpu
      from reported r
      where not exists (
          select 1 from claimed c where c.vm = r.vm and c.server_uuid = r.server_uuid)
        and (r.ram is not null or not exists (
          select 1 from ticketed t where t.vm = r.vm and t.server_uuid = r.server_uuid))
    union all
    select c.server_uuid, c.vm, c.owner, 'provisioning', null, c.ram, c.disk, c.cpu from claimed c
    union all
    select t.server_uuid, t.vm, t.owner, 'provisioning', null, t.ram, t.disk, t.cpu from ticketed t
  )
  select p.server_uuid, count(*),
      coalesce(sum(p.ram) filter (where p.state is distinct from 'failed'), 0),
      coalesce(sum(p.disk), 0),
      coalesce(sum(p.cpu) filter (where p.state is distinct from 'failed'), 0),
      count(*) filter (where p.cpu > 0), count(*) filter (where p.cpu = 0 and p.ram is not null),
      count(*) filter (where p.owner = p_owner),
      coalesce(array_agg(p.vm) filter (where p.vm = any (p_named)), '{}'),
      (array_agg(p.state order by p.changed_at desc nulls last)
        filter (where p.changed_at > (select cnapi_now()) - interval '1 day'))[1:2] = array['failed', 'failed']
    from present p
    group by p.server_uuid
$$;
