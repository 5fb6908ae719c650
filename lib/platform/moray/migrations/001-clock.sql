-- The only source of time in SQL. A simulation replaces it. STABLE lets the planner call it once
-- per statement.
create function cnapi_now() returns timestamptz language sql stable as $$
  select clock_timestamp()
$$;
