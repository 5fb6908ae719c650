-- The workflow job for which a claim holds its room. Such a claim does not expire: a job may wait for
-- longer than a claim lasts, or all instances may be down meanwhile. It ends with its job.
--
--     (none) ──allocate──▶ promised until expires_at ──its job is created──▶ held by that job
--        ▲                    │ expired, released, VM gone                      │ the job ends
--        └────────────────────┴─────────────────────────────────────────────────┘
--
-- While the VM is being created, a claim without a job counts whether or not it has expired.

-- A job that creates a VM takes over the claim of its room, or is not created. Allocations on the
-- server run before or after this: one that runs meanwhile would see the claim expire.
create function cnapi_hold_placement() returns trigger language plpgsql volatile as $$
declare
  held cnapi_placement_claims;
begin
  perform pg_advisory_xact_lock(hashtextextended('placement ' || new.server_uuid, 0));
  select * into held from cnapi_placement_claims c where c.vm_uuid = new.vm_uuid::text for update;
  if held.job is not null then
    raise exception using errcode = 'unique_violation', message = format(
      'workflow job %s creates VM %s', held.job, new.vm_uuid);
  elsif held.vm_uuid is null or held.server_uuid <> new.server_uuid or held.expires_at <= cnapi_now() then
    raise exception using errcode = 'CN409', hint = 'NoAllocatableServersError', message = format(
      'No compute resources available: the room for VM %s on server %s is not held any more; send the request again',
      new.vm_uuid, new.server_uuid);
  end if;
  update cnapi_placement_claims c set job = new.id, expires_at = 'infinity'
    where c.vm_uuid = held.vm_uuid;
  return new;
end $$;

create trigger cnapi_hold_placement before insert on cnapi_workflow_jobs
  for each row when (new.vm_uuid is not null) execute function cnapi_hold_placement();

-- No task of such a job begins without the room. (Those of `onerror` undo what others have begun.)
create function cnapi_require_placement() returns trigger language plpgsql volatile as $$
begin
  perform 1 from cnapi_placement_claims c
    where c.vm_uuid = new.vm_uuid::text and c.server_uuid = new.server_uuid and c.job = new.id for share;
  if not found then
    raise exception using errcode = 'CN409', hint = 'NoAllocatableServersError', message = format(
      'the room for VM %s on server %s is not held any more', new.vm_uuid, new.server_uuid);
  end if;
  return new;
end $$;

create trigger cnapi_require_placement before update on cnapi_workflow_jobs
  for each row when (new.is_begun and not old.is_begun and new.task is not null
    and new.phase = 'chain' and new.vm_uuid is not null)
  execute function cnapi_require_placement();

-- The claim ends in the transaction that ends its job, so a former holder of the job ends no other.
-- A VM that is being created then has told no size yet, and counts by its claim.
create function cnapi_end_placement_of_job() returns trigger language plpgsql volatile as $$
begin
  update cnapi_placement_claims c set job = null, expires_at = cnapi_now()
    where c.vm_uuid = new.vm_uuid::text and c.job = new.id;
  delete from cnapi_placement_claims c
    where c.vm_uuid = new.vm_uuid::text and c.job is null and c.expires_at <= cnapi_now()
      and not cnapi_vm_is_being_created(c.vm_uuid, c.server_uuid);
  return null;
end $$;

create trigger cnapi_end_placement_of_job after update on cnapi_workflow_jobs
  for each row when (old.ended_at is null and new.ended_at is not null and new.vm_uuid is not null)
  execute function cnapi_end_placement_of_job();
