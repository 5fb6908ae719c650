-- As before, but the parameters are read inside of the block: a handler does not catch what the declarations raise,
-- so a task whose `uuid` has a NUL character could not end.
create or replace function cnapi_vm_of_task(p_params json) returns text language plpgsql immutable as $$
declare
  vm_uuid text;
begin
  vm_uuid := lower(p_params ->> 'uuid');
  return case when vm_uuid ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then vm_uuid end;
exception when data_exception then
  return null;
end $$;
