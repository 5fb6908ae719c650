-- Whether these servers can be reached now: through which run, and which process of their agent.
-- Without a run: no session (`unknown`), or a legacy agent. `since`: when its status last changed.
-- For the statements of other subsystems, which may be outdated at once (law 3 of the roster: only
-- its own statements decide).
create function cnapi_presence(p_servers uuid[])
returns table (server_uuid uuid, run uuid, incarnation uuid, since timestamptz)
language sql stable as $$
  select m.server_uuid, case when r.status = 'running' then r.run end,
      case when r.status = 'running' then r.incarnation end, r.since
    from unnest(p_servers) as m (server_uuid)
    left join lateral (
      select a.run, a.incarnation, a.status, a.since from cnapi_roster_authority a
        where a.server_uuid = m.server_uuid offset 0) as r on true
$$;
