-- The trigger of a bucket whose documents tell of their changes. Arguments: the kind of the event,
-- the field that names a server (or an empty text), and the fields that the event shows. A write
-- that leaves the document as it was is not a change.
create function cnapi_log_document_event() returns trigger language plpgsql as $$
declare
  document jsonb := case tg_op when 'DELETE' then old._value else new._value end;
begin
  if tg_op = 'UPDATE' and old._value = new._value then
    return null;
  end if;
  perform cnapi_add_event(tg_argv[0], document ->> tg_argv[1],
    case tg_op when 'DELETE' then cnapi_now() else new._mtime end,
    jsonb_build_object('change',
      case tg_op when 'INSERT' then 'created' when 'UPDATE' then 'updated' else 'deleted' end)
    || (select coalesce(jsonb_object_agg(f.name, document -> f.name), '{}')
          from unnest(tg_argv[2:]) as f (name)));
  return null;
end $$;
