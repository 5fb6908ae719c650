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

-- Stores the VMs that an agent reports, by uuid; only what has changed is written. The caller has
-- locked the server's report (cnapi_server_reports), which orders all writes of its VMs but the
-- creation of their rows. Returns the VMs of the server: those of the report, with what the ends of
-- tasks have written meanwhile. p_destroyed: times at which tasks have destroyed VMs, by uuid.
create function cnapi_store_vms(p_server uuid, p_vms jsonb, p_destroyed jsonb, p_moment timestamptz)
returns jsonb language plpgsql volatile as $$
declare
  reported jsonb;
  young_since timestamptz := p_moment - cnapi_vm_grace();
begin
  select coalesce(jsonb_object_agg(e.key, e.value), '{}') into reported
    from jsonb_each(p_vms) as e
    where not (p_destroyed ? e.key and (p_destroyed ->> e.key)::timestamptz > young_since
      and not exists (select 1 from cnapi_vms v where v._key = e.key));
  delete from cnapi_vms v
    where v.server_uuid = p_server and not reported ? v._key
      and not coalesce(v._value -> 'control' ? 'unreported', false)
      and not (coalesce(v._value -> 'control' ? 'ended', false) and v._mtime > young_since);
  insert into cnapi_vms as v (_key, _value, _etag, _mtime)
    select e.key, n.value, cnapi_vm_etag(n.value), p_moment
      from jsonb_each(reported) as e
      cross join lateral (
        select e.value || jsonb_build_object('uuid', e.key, 'server_uuid', p_server) as value) as n
      where e.key ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
        and not exists (
          select 1 from cnapi_vms v
            where v._key = e.key and v._value - 'control' = n.value
              and not coalesce(v._value -> 'control' ?| array['unreported', 'ended'], false))
      order by e.key
    on conflict (_key) do update
      set _value = excluded._value || case when v._value -> 'control' ? 'claim'
            then jsonb_build_object(
              'control', jsonb_build_object('claim', v._value -> 'control' -> 'claim'))
            else '{}' end,
          _etag = excluded._etag, _mtime = excluded._mtime
      where v.server_uuid = p_server
        and ((v._value - 'control') <> excluded._value
          or v._value -> 'control' ?| array['unreported', 'ended'])
        and not (coalesce(v._value -> 'control' ? 'ended', false) and v._mtime > young_since
          and excluded._value ->> 'last_modified' < v._value ->> 'last_modified');
  return reported || (
    select coalesce(jsonb_object_agg(v._key, v._value - 'control' - 'server_uuid'), '{}')
      from cnapi_vms v
      where v.server_uuid = p_server and v._value -> 'control' ?| array['unreported', 'ended']);
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
