-- The functions on the path of every task keep one plan. Left to itself, Postgres plans their large
-- statements anew at each call: it expects ten elements of an unknown array, and believes a plan
-- for one element to be cheaper. Planning took longer than the work. Their statements are written
-- for any number of elements (005-claim-for-sessions.sql, 008-reports.sql).
alter function cnapi_claim_for_sessions(
  uuid, uuid[], bigint[], uuid[], int, int, int, int, int, int, int, int
) set plan_cache_mode = force_generic_plan;
alter function cnapi_store_task_reports(
  uuid[], uuid[], int[], text[], text[], text[], text[], text[], bigint[], int[], int, int, boolean[]
) set plan_cache_mode = force_generic_plan;
