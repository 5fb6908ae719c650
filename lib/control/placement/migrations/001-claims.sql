-- Room on a server that an allocation has promised to a VM. The VM uuid is the caller's; one VM has
-- one claim. ram and disk in MiB, cpu as `cpu_cap` (100 is one core), 0 without a cap.
--
-- job: the workflow job that holds it, which makes it last (005-jobs.sql). No request changes it then.
--
-- A claim counts until it expires, or for as long as its VM is being created on the server. It does
-- not count once the VM is reported with its size, because then the VM counts; the remains of one
-- that has failed do not count for the VM that is made again.
create table cnapi_placement_claims (
  vm_uuid text collate "C" primary key,
  server_uuid uuid not null,
  owner_uuid text not null,
  ram float8 not null,
  disk float8 not null,
  cpu float8 not null,
  created_at timestamptz not null,
  expires_at timestamptz not null,
  job uuid
);

create index cnapi_placement_claims_server on cnapi_placement_claims (server_uuid);
create index cnapi_placement_claims_expiry on cnapi_placement_claims (expires_at);

-- Whether the task that creates this VM on this server is under way: nothing has told its size yet.
create function cnapi_vm_is_being_created(p_vm text, p_server uuid) returns boolean
language sql stable as $$
  select exists (
    select 1 from cnapi_vms v where v._key = p_vm and v.server_uuid = p_server
      and jsonb_typeof(v._value -> 'max_physical_memory') is distinct from 'number')
$$;

-- Where a VM is gone, its claim ends: it was destroyed, or its creation has failed. A claim that is
-- younger is for a VM that will be made again. That of a job ends with the job. One that another
-- transaction has locked is left to expire: the ends of tasks and the reports of a whole batch would
-- wait for it.
create function cnapi_end_placement_claims() returns trigger language plpgsql as $$
begin
  delete from cnapi_placement_claims c
    where c.vm_uuid in (
      select d.vm_uuid from cnapi_placement_claims d join gone g
          on d.vm_uuid = g._key and d.server_uuid = g.server_uuid
        where d.created_at <= g._mtime and d.job is null
        order by d.vm_uuid for update of d skip locked);
  return null;
end $$;

create trigger cnapi_end_placement_claims after delete on cnapi_vms
  referencing old table as gone
  for each statement execute function cnapi_end_placement_claims();

-- Deletes claims that expired long ago, at most p_most. A claim that an allocation is renewing is
-- skipped.
create function cnapi_delete_placement_claims(p_most int) returns bigint
language plpgsql volatile as $$
declare
  deleted bigint;
begin
  delete from cnapi_placement_claims c
    where c.vm_uuid in (
      select d.vm_uuid from cnapi_placement_claims d
        where d.expires_at < cnapi_now() - interval '1 hour'
          and not cnapi_vm_is_being_created(d.vm_uuid, d.server_uuid)
        order by d.expires_at limit p_most for update skip locked);
  get diagnostics deleted = row_count;
  return deleted;
end $$;
