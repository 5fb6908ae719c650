-- The members of a group, each with its kind, as 'user:UUID'. An index over them finds the groups
-- of a member. The documents of groups have up to 3,000 members, which are stored out of line, so a
-- statement that reads them is slow. The cost says so to the planner.
create function cnapi_group_members(p_group jsonb) returns text[]
language sql immutable parallel safe strict cost 10000 as $$
  select array(
    select kind || ':' || member
    from unnest(array['user', 'client', 'group']) as kind,
      jsonb_array_elements_text(coalesce(p_group -> (kind || 's'), '[]')) as member)
$$;
