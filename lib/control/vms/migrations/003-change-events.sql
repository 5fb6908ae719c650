-- The event of each change of a VM's state. A VM that is gone has the state `destroyed`.
create function cnapi_log_vm_event() returns trigger language plpgsql as $$
declare
  vm jsonb := case tg_op when 'DELETE' then old._value else new._value end;
  before text := case tg_op when 'INSERT' then null else old._value ->> 'state' end;
  after text := case tg_op when 'DELETE' then 'destroyed' else new._value ->> 'state' end;
begin
  if before is distinct from after then
    perform cnapi_add_event('vm', vm ->> 'server_uuid',
      case tg_op when 'DELETE' then cnapi_now() else new._mtime end,
      jsonb_build_object('uuid', vm ->> 'uuid', 'server_uuid', vm ->> 'server_uuid',
        'alias', left(vm ->> 'alias', 200), 'owner_uuid', left(vm ->> 'owner_uuid', 36),
        'state', left(coalesce(after, 'unknown'), 50), 'previous', left(before, 50)));
  end if;
  return null;
end $$;
