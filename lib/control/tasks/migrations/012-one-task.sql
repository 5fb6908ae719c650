-- One task, for subsystems whose work consists of tasks: as cnapi_create_tasks (009-bulk.sql), with
-- parameters that may hold secrets and with the request that it is for. Returns the run that had
-- authority for the server, which is to be told; null: none at present.
create function cnapi_create_task_of(
  p_id uuid, p_server uuid, p_name text, p_params json, p_masked_params json, p_timeout_ms int,
  p_idempotent boolean, p_actor text, p_summary text, p_req_id text
) returns uuid language plpgsql volatile as $$
declare
  moment timestamptz := cnapi_now();
begin
  insert into cnapi_tasks (id, server_uuid, name, params, params_bytes, masked_params, timeout_ms,
      idempotent, request_hash, created_at, queued_at, actor, summary, req_id)
    values (p_id, p_server, p_name, p_params, octet_length(p_params::text), p_masked_params,
      p_timeout_ms, p_idempotent, '', moment, moment, p_actor, p_summary, p_req_id);
  return (select r.run from cnapi_roster_authority r where r.server_uuid = p_server);
end $$;
