-- The VMs of all servers, as their agents report them. The table has the form of a bucket
-- (bucket-schema.ts), whose declaration is in vm-bucket.ts and adds the other indexes. It is here
-- because functions of this and of other subsystems name it.
--
-- _key     the uuid. Two servers cannot have VMs with one uuid: the first one keeps it
-- _value   what the agent reports, `server_uuid`, and `control`, which is never shown:
--   claim       the idempotency key of the task that creates the VM, or else the task's id
--   unreported  the agent has not reported the VM yet; only the task is known
--   ended       the end of a task wrote it last, and no report has confirmed it yet
create table cnapi_vms (
  _id bigint generated always as identity primary key,
  _key text collate "C" not null unique,
  _value jsonb not null,
  _etag text not null,
  _mtime timestamptz not null,
  "server_uuid" uuid generated always as (case when (_value ->> 'server_uuid') ~ '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$' then (_value ->> 'server_uuid')::uuid end) stored
);

create index "cnapi_vms_server_uuid_idx" on cnapi_vms ("server_uuid");

-- How long a report does not undo what the end of a task wrote: the agent may have sent the report
-- before the end, and it may be stored later.
create function cnapi_vm_grace() returns interval language sql immutable as $$
  select interval '10 seconds'
$$;

create function cnapi_vm_etag(p_value jsonb) returns text language sql volatile as $$
  select md5(nextval('cnapi_etag')::text || p_value::text)
$$;

-- All statements take the locks of VMs in one order: reports of servers by uuid, tasks by id, VMs by
-- uuid. The report of its server guards a VM, so only transactions with that report change its row.
-- Statements about several servers skip rows that are locked all the same, and name them.
--
-- Locks these VMs of these servers. Returns the uuids of those that another transaction has locked.
create function cnapi_lock_vms(p_servers uuid[], p_vms text[]) returns text[]
language plpgsql volatile as $$
declare
  held text[];
begin
  held := array(
    select v._key from cnapi_vms v
      where v._key = any (p_vms) and (v._key, v.server_uuid) in (
        select n.vm, n.server_uuid from unnest(p_servers, p_vms) as n (server_uuid, vm))
      order by v._key for update skip locked);
  return array(
    select v._key from cnapi_vms v
      where v._key = any (p_vms) and v._key <> all (held) and (v._key, v.server_uuid) in (
        select n.vm, n.server_uuid from unnest(p_servers, p_vms) as n (server_uuid, vm)));
end $$;

-- Stores the VMs that agents report, by uuid, each server once; only what has changed is written.
-- The caller has locked the reports of these servers. Returns for each server its VMs: those of its
-- report, with what the ends of tasks have written meanwhile. A server is left out, and nothing of
-- it is changed, if another transaction has locked one of its VMs. p_destroyed: times at which tasks
-- have destroyed VMs, by uuid.
--
-- Only new uuids can be wanted by two transactions, because two servers report them. So all new
-- rows are inserted by one statement, in their order, after all that is locked; and deletions come
-- last, because an insert waits for the end of the transaction that deletes the same uuid.
create function cnapi_store_vms_of(
  p_servers uuid[], p_vms jsonb[], p_destroyed jsonb[], p_moment timestamptz
) returns table (server_uuid uuid, vms jsonb) language plpgsql volatile as $$
#variable_conflict use_column
declare
  young_since timestamptz := p_moment - cnapi_vm_grace();
  servers uuid[];
  reported jsonb[];
  touched text[];
  held text[];
  busy uuid[];
begin
  select array_agg(n.server_uuid), array_agg(case when n.destroyed = '{}' then n.vms else (
        select coalesce(jsonb_object_agg(e.key, e.value), '{}') from jsonb_each(n.vms) as e
          where not (n.destroyed ? e.key and (n.destroyed ->> e.key)::timestamptz > young_since
            and not exists (select 1 from cnapi_vms v where v._key = e.key))) end)
    into servers, reported
    from unnest(p_servers, p_vms, p_destroyed) as n (server_uuid, vms, destroyed);

  touched := array(
    select v._key from unnest(servers, reported) as n (server_uuid, vms)
      join cnapi_vms v on v.server_uuid = n.server_uuid
      where not n.vms ? v._key
        or v._value - 'control' <> (n.vms -> v._key) || jsonb_build_object(
          'uuid', v._key, 'server_uuid', n.server_uuid)
        or coalesce(v._value -> 'control' ?| array['unreported', 'ended'], false));
  held := array(
    select v._key from cnapi_vms v where v._key = any (touched)
      order by v._key for update skip locked);
  if cardinality(held) < cardinality(touched) then
    busy := array(
      select distinct v.server_uuid from cnapi_vms v
        where v._key = any (touched) and v._key <> all (held));
    select array_agg(n.server_uuid), array_agg(n.vms) into servers, reported
      from unnest(servers, reported) as n (server_uuid, vms)
      where n.server_uuid <> all (busy);
  end if;

  update cnapi_vms v
    set _value = n.value || case when v._value -> 'control' ? 'claim'
          then jsonb_build_object(
            'control', jsonb_build_object('claim', v._value -> 'control' -> 'claim'))
          else '{}' end,
        _etag = cnapi_vm_etag(n.value), _mtime = p_moment
    from (
      select o._key, (r.vms -> o._key) || jsonb_build_object(
            'uuid', o._key, 'server_uuid', o.server_uuid) as value
        from cnapi_vms o join unnest(servers, reported) as r (server_uuid, vms)
          on r.server_uuid = o.server_uuid
        where o._key = any (held) and r.vms ? o._key
    ) as n
    where v._key = n._key
      and not (coalesce(v._value -> 'control' ? 'ended', false) and v._mtime > young_since
        and n.value ->> 'last_modified' < v._value ->> 'last_modified');
  insert into cnapi_vms (_key, _value, _etag, _mtime)
    select e.key, n.value, cnapi_vm_etag(n.value), p_moment
      from unnest(servers, reported) as r (server_uuid, vms)
      cross join lateral jsonb_each(r.vms) as e
      cross join lateral (
        select e.value || jsonb_build_object('uuid', e.key, 'server_uuid', r.server_uuid) as value
      ) as n
      where e.key ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
        and not exists (select 1 from cnapi_vms v where v._key = e.key)
      order by e.key, r.server_uuid
    on conflict (_key) do nothing;
  delete from cnapi_vms v
    using unnest(servers, reported) as r (server_uuid, vms)
    where v._key = any (held) and r.server_uuid = v.server_uuid and not r.vms ? v._key
      and not coalesce(v._value -> 'control' ? 'unreported', false)
      and not (coalesce(v._value -> 'control' ? 'ended', false) and v._mtime > young_since);
  return query
    select r.server_uuid, r.vms || coalesce(f.vms, '{}')
      from unnest(servers, reported) as r (server_uuid, vms)
      left join (
        select v.server_uuid,
            jsonb_object_agg(v._key, v._value - 'control' - 'server_uuid') as vms
          from cnapi_vms v
          where v.server_uuid = any (servers)
            and v._value -> 'control' ?| array['unreported', 'ended']
          group by v.server_uuid
      ) as f on f.server_uuid = r.server_uuid;
end $$;

-- The number of VMs that are stored of each of these servers; none of one without VMs.
create function cnapi_count_vms(p_servers uuid[]) returns table (server_uuid uuid, vms bigint)
language sql stable as $$
  select v.server_uuid, count(*) from cnapi_vms v where v.server_uuid = any (p_servers) group by 1
$$;

-- The server was removed.
create function cnapi_remove_vms(p_server uuid) returns void language sql volatile as $$
  delete from cnapi_vms where server_uuid = p_server
$$;
