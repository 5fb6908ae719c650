-- Ends some posts of these runs. Leaves those whose ends write what another transaction has locked.
create function cnapi_end_posts(p_runs uuid[], p_error text, p_most int) returns setof uuid
language plpgsql volatile as $$
declare
  picked uuid[];
begin
  picked := cnapi_lock_task_ends_up_to(array(
    select t.id from cnapi_tasks t
      where (t.state || '') = 'claimed' and t.posted_by = any (p_runs)
      order by t.id limit 20 * p_most), p_most);
  return query
    update cnapi_tasks t set state = 'ended', outcome = 'failure', error = p_error::json
      where t.id = any (picked) and (t.state || '') = 'claimed' and t.posted_by = any (p_runs)
      returning t.id;
end $$;
