-- What the database itself ensures, whichever statement writes: an ended task does not change,
-- attempts are numbered without gaps, every end creates its event, ticks are set when a task joins
-- its queue or its attempt advances, and secrets are deleted at the end.

create function cnapi_tasks_guard() returns trigger language plpgsql as $$
begin
  if old.state = 'ended' then
    if new.state <> 'ended' or new.outcome <> old.outcome or new.attempt <> old.attempt then
      raise exception 'task % has ended and cannot change', old.id;
    end if;
  elsif new.attempt <> old.attempt
      + (case when old.state = 'queued' and new.state = 'claimed' then 1 else 0 end) then
    raise exception 'task %: attempt % cannot follow attempt %', old.id, new.attempt, old.attempt;
  elsif new.state = 'ended' then
    new.ended_at := cnapi_now();
    new.last_seq := new.last_seq + 1;
    insert into cnapi_task_events (task_id, seq, attempt, name, stored_at)
      values (new.id, new.last_seq, new.attempt, 'end', new.ended_at);
  elsif new.state = 'queued' then
    if old.state <> 'queued' then
      new.queued_tick := cnapi_tick();
    end if;
  elsif old.state = 'queued' or old.accepted_at is null and new.accepted_at is not null
      or old.started_at is null and new.started_at is not null then
    new.worked_tick := cnapi_tick();
  end if;
  return new;
end $$;

create trigger cnapi_tasks_guard before update on cnapi_tasks
  for each row execute function cnapi_tasks_guard();

-- The number of a signal of Linux, 1 to 31; null for another name.
create function cnapi_signal_number(p_name text) returns int language sql immutable as $$
  select array_position(array[
    'SIGHUP', 'SIGINT', 'SIGQUIT', 'SIGILL', 'SIGTRAP', 'SIGABRT', 'SIGBUS', 'SIGFPE', 'SIGKILL',
    'SIGUSR1', 'SIGSEGV', 'SIGUSR2', 'SIGPIPE', 'SIGALRM', 'SIGTERM', 'SIGSTKFLT', 'SIGCHLD',
    'SIGCONT', 'SIGSTOP', 'SIGTSTP', 'SIGTTIN', 'SIGTTOU', 'SIGURG', 'SIGXCPU', 'SIGXFSZ',
    'SIGVTALRM', 'SIGPROF', 'SIGWINCH', 'SIGIO', 'SIGPWR', 'SIGSYS'], p_name)
$$;

-- The exit code; 128 + N if signal N ended the command, as shells say it. Both are searched at the
-- beginning of the result, where agents put them, and as text: a result is `json` and may hold
-- characters that no json function accepts. Quotation marks within a text of the result are
-- escaped, so no output can look like an exit code.
create function cnapi_tasks_exit_code() returns trigger language plpgsql as $$
declare
  head text := left(new.result::text, 1000);
begin
  new.exit_code := coalesce(
    substring(head from '"exitCode":(-?[0-9]{1,9})[,}]')::int,
    128 + cnapi_signal_number(substring(head from '"signal":"(SIG[A-Z0-9]{1,12})"[,}]')));
  return new;
end $$;

create trigger cnapi_tasks_exit_code before update on cnapi_tasks
  for each row
  when (new.state = 'ended' and old.state <> 'ended' and new.result is not null)
  execute function cnapi_tasks_exit_code();

create function cnapi_tasks_forget_secrets() returns trigger language plpgsql as $$
begin
  new.params := new.masked_params;
  return new;
end $$;

create trigger cnapi_tasks_forget_secrets before update on cnapi_tasks
  for each row
  when (new.state = 'ended' and new.masked_params is not null)
  execute function cnapi_tasks_forget_secrets();
