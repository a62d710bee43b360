-- Open a session, unless it is open, and keep the events of its opening, `events` as in a commit; null if it was open,
-- else the numbers of the first event.
create function harborage_open_session(
  for_tenant text, for_user text, for_session text, at_time bigint, opened_with bytea, events jsonb, blobs bytea[]
) returns jsonb language plpgsql as $$
declare
  opened bigint;
  numbered record;
begin
  insert into harborage_sessions (tenant, "user", session, opened_at, seen_at, context)
  values (for_tenant, for_user, for_session, at_time, at_time, opened_with)
  on conflict (tenant, "user", session) do nothing
  returning num into opened;
  if opened is null and not exists (
    select from harborage_sessions
    where tenant = for_tenant and "user" = for_user and session = for_session and context is null
  ) then
    return null;
  end if;
  if jsonb_array_length(events) > 0 then
    -- Before the row that others have made: a commit that numbers events writes it under this lock.
    perform pg_advisory_xact_lock(hashtextextended('harborage events in ' || current_schema(), 0));
  end if;
  if opened is null then
    update harborage_sessions
    set opened_at = at_time, seen_at = greatest(seen_at, at_time), context = opened_with
    where tenant = for_tenant and "user" = for_user and session = for_session and context is null
    returning num into opened;
  end if;
  if opened is null or jsonb_array_length(events) = 0 then
    return case when opened is not null then '{"first": 0, "place": 0}' end;
  end if;
  select first, place into numbered from harborage_publish(
    jsonb_build_array(jsonb_build_object('who', 1, 'events', events)), array[opened], blobs, array[1],
    jsonb_array_length(events), at_time
  );
  return jsonb_build_object('first', numbered.first, 'place', numbered.place);
end
$$;
