-- Who made a claim: a token, a signer or an address, as limits count them. Null: nobody is counted,
-- or an instance of an earlier version made it.
alter table cnapi_placement_claims add column caller text;

create index cnapi_placement_claims_caller on cnapi_placement_claims (caller, expires_at) where caller is not null;

-- The same as cnapi_claim_placement, for a caller who may have p_max_claims claims that have not
-- expired. One more outcome:
--
--   many      the caller has as many claims as it may; nothing was changed
--
-- Nothing is changed either of a claim that a job holds. The outcome is `known` for an equal request
-- that takes the server of the job, else `creating`.
--
-- The claims of a caller are counted one after the other, behind a lock of the caller. Each
-- transaction takes it before the lock of its server: other callers do not wait at that server for
-- this caller's other claims, and the time limit of the locks that follow does not apply to it.
create function cnapi_claim_room(
  p_vm text, p_server uuid, p_owner text, p_ram float8, p_disk float8, p_cpu float8,
  p_max_vms float8, p_max_ram float8, p_max_disk float8, p_max_cpu float8,
  p_instead uuid, p_expires_in_ms bigint, p_caller text, p_max_claims int
) returns table (server_uuid uuid, outcome text) language plpgsql volatile as $$
#variable_conflict use_column
declare
  claim record;
  others bigint;
begin
  if p_caller is not null then
    perform pg_advisory_xact_lock(hashtextextended('placement of ' || p_caller, 0));
  end if;
  select c.server_uuid, c.outcome into claim from cnapi_claim_placement(
    p_vm, p_server, p_owner, p_ram, p_disk, p_cpu, p_max_vms, p_max_ram, p_max_disk, p_max_cpu,
    p_instead, p_expires_in_ms) c;
  if claim.outcome is null then
    return;
  elsif claim.outcome = 'claimed' and exists (
    select 1 from cnapi_placement_claims c where c.vm_uuid = p_vm and c.job is not null) then
    raise exception using errcode = 'CN423', message = 'the claim is that of a workflow job';
  elsif claim.outcome = 'claimed' and p_caller is not null then
    select count(*) into others from cnapi_placement_claims c
      where c.caller = p_caller and c.vm_uuid <> p_vm and c.expires_at > cnapi_now();
    if others >= p_max_claims then
      raise exception using errcode = 'CN429', message = 'the caller has as many claims as it may';
    end if;
    update cnapi_placement_claims c set caller = p_caller where c.vm_uuid = p_vm;
  end if;
  return query select claim.server_uuid, claim.outcome;
exception
  -- In both cases what was claimed above is undone.
  when sqlstate 'CN429' then
    return query select p_server, 'many';
  when sqlstate 'CN423' then
    return query select c.server_uuid,
        case when c.server_uuid is distinct from p_instead
          and (c.owner_uuid, c.ram, c.disk, c.cpu) = (p_owner, p_ram, p_disk, p_cpu)
        then 'known' else 'creating' end
      from cnapi_placement_claims c where c.vm_uuid = p_vm;
end $$;
