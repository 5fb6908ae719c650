-- Whether a server can be reached now: through which run, and which process of its agent. Without
-- a run: no session (`unknown`), or a legacy agent. `since`: when its status last changed. No row: a
-- server that has never had a session. For statements of other subsystems: the answer may be outdated
-- immediately, and only the roster's own statements decide. For lateral joins: Postgres puts the look-up
-- into the statement.
create function cnapi_presence_of(p_server uuid)
returns table (run uuid, incarnation uuid, since timestamptz)
language sql stable as $$
  select case when a.status = 'running' then a.run end,
      case when a.status = 'running' then a.incarnation end, a.since
    from cnapi_roster_authority a where a.server_uuid = p_server
$$;

-- The same of several, a row for each.
create function cnapi_presence(p_servers uuid[])
returns table (server_uuid uuid, run uuid, incarnation uuid, since timestamptz)
language sql stable as $$
  select m.server_uuid, p.run, p.incarnation, p.since
    from unnest(p_servers) as m (server_uuid)
    left join lateral (
      select * from cnapi_presence_of(m.server_uuid) offset 0) as p on true
$$;
