-- Begins the drain of a run. Returns 'draining'; 'gone' if the run is not live; 'last' if no other
-- instance stays: the last instance is not drained. All live rows are locked first, so two requests
-- at the same time are handled one after the other.
--
-- The remaining instances are counted by `cnapi_uuid`, not by run. An instance that was killed and
-- restarted may still have an earlier run that nobody has declared dead, but agents cannot go to
-- that run.
create function cnapi_drain(wanted uuid) returns text language plpgsql volatile as $$
declare
  leaving cnapi_instances;
begin
  perform 1 from cnapi_instances where state = 'live' order by run for update;
  select * into leaving from cnapi_instances where run = wanted and state = 'live';
  if not found then
    return 'gone';
  elsif leaving.draining_since is not null then
    return 'draining';
  elsif not exists (
    select 1 from cnapi_instances
    where state = 'live' and draining_since is null and cnapi_uuid <> leaving.cnapi_uuid
  ) then
    return 'last';
  end if;
  update cnapi_instances set draining_since = cnapi_now() where run = wanted;
  return 'draining';
end $$;
