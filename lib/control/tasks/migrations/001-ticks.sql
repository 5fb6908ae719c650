-- The counter that measures deadlines of tasks (deadline-counter.ts). It is a sequence: its value
-- is read in one place and leaves no dead rows, however long a snapshot is open. After a crash
-- Postgres may continue up to 32 values later. This is harmless: after an outage, sweeps wait for a
-- whole deadline anyway.
create sequence cnapi_ticks;

create function cnapi_tick() returns bigint language plpgsql stable as $$
begin
  return (select last_value from cnapi_ticks);
end $$;

-- The lock is of the transaction, and nobody waits for it: whoever has it advances the counter.
create function cnapi_advance_ticks(p_seen bigint, p_by int) returns bigint
language plpgsql volatile as $$
begin
  if p_by > 0 and pg_try_advisory_xact_lock(hashtextextended('cnapi_ticks', 0)) then
    if cnapi_tick() = p_seen then
      perform setval('cnapi_ticks', p_seen + p_by);
    end if;
  end if;
  return cnapi_tick();
end $$;
