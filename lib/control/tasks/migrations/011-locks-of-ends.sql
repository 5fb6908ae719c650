-- Statements that end several tasks lock all that these ends write, before they write: reports of
-- servers by uuid, tasks by id, VMs by uuid. Two of them never wait for each other, nor for a
-- transaction that stays open: they skip what is locked, and are called again.

-- Locks these tasks and, of those about VMs, what the triggers of their ends write. Returns the
-- tasks of which all is locked.
create function cnapi_lock_task_ends(p_tasks uuid[]) returns uuid[]
language plpgsql volatile as $$
declare
  of_vms uuid[];
  busy uuid[];
  held uuid[];
  held_of_vms uuid[];
  vm_servers uuid[];
  vms text[];
  busy_vms text[];
begin
  -- Each task is a lookup of the primary key (`offset 0`); Postgres would else read the tasks of all
  -- servers in their order, where it expects few.
  of_vms := array(
    select t.id from unnest(p_tasks) as p (id)
      cross join lateral (select t.id, t.name from cnapi_tasks t where t.id = p.id offset 0) as t
      where starts_with(t.name, 'machine_'));
  if cardinality(of_vms) = 0 then
    return array(
      select t.id from cnapi_tasks t where t.id = any (p_tasks)
        order by t.id for update skip locked);
  end if;
  busy := cnapi_lock_reports(array(
    select distinct t.server_uuid from cnapi_tasks t where t.id = any (of_vms)));
  if cardinality(busy) > 0 then
    busy := array(
      select t.id from cnapi_tasks t where t.id = any (of_vms) and t.server_uuid = any (busy));
  end if;
  held := array(
    select t.id from cnapi_tasks t
      where t.id = any (array(select p from unnest(p_tasks) as p except select b from unnest(busy) as b))
      order by t.id for update skip locked);
  select array_agg(t.id), array_agg(t.server_uuid), array_agg(t.vm)
    into held_of_vms, vm_servers, vms
    from (
      select t.id, t.server_uuid, cnapi_vm_of_task(t.params) as vm from cnapi_tasks t
        where t.id = any (array(
          select h from unnest(held) as h intersect select o from unnest(of_vms) as o))
    ) as t
    where t.vm is not null;
  busy_vms := cnapi_lock_vms(vm_servers, vms);
  if cardinality(busy_vms) > 0 then
    held := array(
      select h from unnest(held) as h except
        select u.id from unnest(held_of_vms, vms) as u (id, vm) where u.vm = any (busy_vms));
  end if;
  return held;
end $$;

-- Locks at most p_most of these tasks in the same way. Others take the places of tasks that cannot
-- be locked, in at most 20 rounds: when few places are left, a round tries few tasks.
create function cnapi_lock_task_ends_up_to(p_tasks uuid[], p_most int) returns uuid[]
language plpgsql volatile as $$
declare
  held uuid[] := '{}';
  place int := 1;
  next_place int;
  rounds int := 0;
begin
  while place <= cardinality(p_tasks) and cardinality(held) < p_most and rounds < 20 loop
    rounds := rounds + 1;
    next_place := place + p_most - cardinality(held);
    held := held || cnapi_lock_task_ends(p_tasks[place:next_place - 1]);
    place := next_place;
  end loop;
  return held;
end $$;
