-- What tasks do to the VMs that are stored, in the transactions of the tasks.

-- The VM that a task names; null if it names none. Parameters may be anything, also what `jsonb`
-- cannot hold: they are read inside of the block, because a handler does not catch what declarations
-- raise.
create function cnapi_vm_of_task(p_params json) returns text language plpgsql immutable as $$
declare
  vm_uuid text;
begin
  vm_uuid := lower(p_params ->> 'uuid');
  return case when vm_uuid ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then vm_uuid end;
exception when data_exception then
  return null;
end $$;

-- A task that creates a VM claims its uuid. Another task cannot be created for a uuid that is
-- claimed, or whose VM exists. The error is shown to the caller: its hint is the code.
create function cnapi_claim_vm() returns trigger language plpgsql as $$
declare
  vm_uuid text := cnapi_vm_of_task(new.params);
  claim text := coalesce(new.idempotency_key, new.id::text);
  value jsonb;
  holder jsonb;
begin
  if vm_uuid is null or not cnapi_lock_report(new.server_uuid) then
    return null;
  end if;
  value := jsonb_strip_nulls(jsonb_build_object(
    'uuid', vm_uuid, 'server_uuid', new.server_uuid, 'state', 'provisioning',
    'zone_state', 'incomplete', 'alias', left(new.params ->> 'alias', 200),
    'brand', left(new.params ->> 'brand', 50), 'owner_uuid', left(new.params ->> 'owner_uuid', 36),
    'image_uuid', left(new.params ->> 'image_uuid', 36),
    'control', jsonb_build_object('claim', claim, 'unreported', true)));
  insert into cnapi_vms (_key, _value, _etag, _mtime)
    values (vm_uuid, value, cnapi_vm_etag(value), cnapi_now())
    on conflict (_key) do nothing;
  if found then
    perform cnapi_change_reported_vm(new.server_uuid, vm_uuid, value - 'control' - 'server_uuid');
    return null;
  end if;
  select v._value into holder from cnapi_vms v where v._key = vm_uuid;
  raise exception using errcode = 'CN409', hint = 'VmExists', message = format(
    'VM %s exists on server %s, in the state %s', vm_uuid, holder ->> 'server_uuid',
    holder ->> 'state');
end $$;

create trigger cnapi_claim_vm after insert on cnapi_tasks
  for each row when (new.name = 'machine_create') execute function cnapi_claim_vm();

-- The end of a task and the state of the VM that it caused are visible together: the result of a
-- task has the VM. A result that is older than what is stored changes nothing; the agent's clock
-- decides, and its next report corrects what a clock that was set back left. The end of a creation
-- changes the VM that the task has claimed, and adds none: a VM that was destroyed meanwhile stays so.
create function cnapi_end_vm_task() returns trigger language plpgsql as $$
declare
  -- At its end the parameters of a task may be replaced by masked ones.
  vm_uuid text := cnapi_vm_of_task(old.params);
  claim text := coalesce(new.idempotency_key, new.id::text);
  reported_vm jsonb;
begin
  if vm_uuid is null or (new.outcome = 'failure' and new.name <> 'machine_create')
    or not cnapi_lock_report(new.server_uuid) then
    return null;
  end if;
  if new.outcome = 'failure' then
    delete from cnapi_vms v
      where v._key = vm_uuid and v.server_uuid = new.server_uuid
        and v._value -> 'control' ? 'unreported' and v._value -> 'control' ->> 'claim' = claim;
    if found then
      perform cnapi_change_reported_vm(new.server_uuid, vm_uuid, null);
    end if;
    return null;
  elsif new.name = 'machine_destroy' then
    delete from cnapi_vms v where v._key = vm_uuid and v.server_uuid = new.server_uuid
      and not coalesce(v._value -> 'control' ? 'unreported', false);
    if not exists (
      select 1 from cnapi_vms v where v._key = vm_uuid and v.server_uuid = new.server_uuid) then
      perform cnapi_change_reported_vm(new.server_uuid, vm_uuid, null);
    end if;
    return null;
  end if;
  -- An agent may answer anything. What cannot be stored as a VM arrives with its next report.
  begin
    select jsonb_object_agg(e.key, e.value) into reported_vm
      from jsonb_each((new.result -> 'vm')::jsonb) as e
      where e.key = any (array['uuid', 'alias', 'brand', 'cpu_cap', 'image_uuid', 'last_modified',
        'max_physical_memory', 'owner_uuid', 'quota', 'state', 'zone_state', 'exit_status', 'error']);
  exception when data_exception then
    reported_vm := null;
  end;
  if reported_vm ->> 'uuid' is distinct from vm_uuid or length(reported_vm::text) > 10000 then
    update cnapi_vms v
      set _value = jsonb_set(v._value, '{control}',
        (v._value -> 'control') - 'unreported' || '{"ended": true}')
      where new.name = 'machine_create' and v._key = vm_uuid
        and v.server_uuid = new.server_uuid and v._value -> 'control' ? 'unreported';
    return null;
  end if;
  update cnapi_vms v
    set _value = n.value, _etag = cnapi_vm_etag(n.value), _mtime = cnapi_now()
    from (
      select o._key, reported_vm || jsonb_build_object('server_uuid', new.server_uuid, 'control',
          (coalesce(o._value -> 'control', '{}') - 'unreported') || '{"ended": true}') as value
        from cnapi_vms o where o._key = vm_uuid) as n
    where v._key = vm_uuid and v.server_uuid = new.server_uuid
      and (coalesce(v._value -> 'control' ? 'unreported', false)
        or coalesce(reported_vm ->> 'last_modified' >= v._value ->> 'last_modified', true))
      and ((v._value - 'control') <> (n.value - 'control')
        or coalesce(v._value -> 'control' ? 'unreported', false));
  if found then
    perform cnapi_change_reported_vm(new.server_uuid, vm_uuid, reported_vm);
  end if;
  return null;
end $$;

create trigger cnapi_end_vm_task after update on cnapi_tasks
  for each row
  when (new.state = 'ended' and old.state <> 'ended' and starts_with(new.name, 'machine_'))
  execute function cnapi_end_vm_task();
