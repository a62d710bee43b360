-- What changes the tables. Each change is one call of one function, which is one transaction: no client ever holds a
-- lock while it thinks, and each of the statements in here sees what others have committed before it.
--
-- Locks are taken in one order, so that no two changes wait for each other: the writer's own row, new sessions, runs by
-- their number, groups by theirs, the one lock for waits, and last the lock under which events are numbered. That a session is not closed while
-- a run starts in it is a lock that only its closing waits for; who notes that it was seen waits for nobody.
--
-- Every statement looks for its rows by their keys, whatever the values: a plan is made once for a connection, and
-- never reads a whole table, however small that is just then.

-- The answer to a batch that was applied before, or null; until this transaction ends the writer has no other batch.
create function harborage_known(by_writer text, as_batch bigint) returns jsonb language plpgsql as $$
declare
  last bigint;
  kept jsonb;
begin
  select batch, answer into last, kept from harborage_writers where name = by_writer for no key update;
  if not found then
    insert into harborage_writers (name, batch, answer) values (by_writer, 0, 'null') on conflict (name) do nothing;
    select batch, answer into last, kept from harborage_writers where name = by_writer for no key update;
  end if;
  if as_batch < last then
    raise exception 'batch % of this writer was given up and comes too late', as_batch;
  end if;
  return case when as_batch = last then kept end;
end
$$;

create function harborage_keep(by_writer text, as_batch bigint, as_answer jsonb) returns jsonb language plpgsql as $$
begin
  update harborage_writers set batch = as_batch, answer = as_answer, seen_at = clock_timestamp()
  where name = by_writer;
  return as_answer;
end
$$;

-- Apply a batch of commits in their order; one answer each. `commits` name bytes by their place in `blobs`, and
-- sessions by their place in the three arrays; those of `opening` are opened if they are new. `runs`, `ends`,
-- `pause_tokens` and `groups` are what must be locked: the runs that are written or awaited, the runs and groups that
-- end, the pauses that are settled, and the groups that members join or that are awaited; `waits` says that a run is
-- to wait for another one.
create function harborage_commit(
  by_writer text, as_batch bigint, at_time bigint, commits jsonb, blobs bytea[],
  tenants text[], users text[], sessions text[], opening boolean[],
  runs text[], ends text[], pause_tokens text[], groups text[], waits boolean
) returns jsonb language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
  known jsonb := harborage_known(by_writer, as_batch);
  nums bigint[];
  opened bigint[];
  one jsonb;
  answer jsonb;
  answers jsonb[] := '{}';
  accepted integer[] := '{}';
  events integer := 0;
  starts boolean := false;
  numbered record;
begin
  if known is not null then
    return known;
  end if;
  nums := harborage_sessions_of(tenants, users, sessions);
  if array_position(nums, null) is not null then
    opened := harborage_open_sessions(at_time, tenants, users, sessions, opening);
    nums := harborage_sessions_of(tenants, users, sessions);
  end if;
  perform harborage_lock(nums, runs, ends, pause_tokens, groups, waits);
  for one in select value from jsonb_array_elements(commits) loop
    answer := harborage_apply(one, nums, blobs, at_time);
    answers := answers || answer;
    if not answer ?| '{refused,again}' then
      accepted := accepted || cardinality(answers);
      events := events + coalesce(jsonb_array_length(one -> 'events'), 0);
      starts := starts or one ? 'starts';
    end if;
  end loop;
  if opened is not null then
    -- What only a refused commit would have opened was never there.
    delete from harborage_sessions where num = any(opened) and num <> all(array(
      select nums[used::integer]
      from jsonb_array_elements(commits) with ordinality as kept (body, nth)
      cross join jsonb_array_elements_text(kept.body -> 'opening') as used
      where kept.nth = any(accepted)
    ));
  end if;
  if events > 0 then
    -- A statement of its own: one that waits for a lock in its middle sees what was there before it waited.
    perform pg_advisory_xact_lock(hashtextextended('harborage events in ' || current_schema(), 0));
    for numbered in select * from harborage_publish(commits, nums, blobs, accepted, events, at_time) loop
      answers[numbered.nth] := answers[numbered.nth]
        || jsonb_build_object('first', numbered.first, 'place', numbered.place);
    end loop;
  end if;
  if starts then
    perform harborage_see_sessions(commits, nums, accepted, at_time);
  end if;
  return harborage_keep(by_writer, as_batch, to_jsonb(answers));
end
$$;

create function harborage_sessions_of(tenants text[], users text[], sessions text[])
returns bigint[] language sql stable as $$
  select array_agg(session.num order by wanted.nth)
  from unnest(tenants, users, sessions) with ordinality as wanted (tenant, "user", session, nth)
  left join harborage_sessions as session using (tenant, "user", session)
$$;

create function harborage_open_sessions(
  at_time bigint, tenants text[], users text[], sessions text[], opening boolean[]
) returns bigint[] language sql as $$
  with made as (
    insert into harborage_sessions (tenant, "user", session, opened_at, seen_at)
    select wanted.tenant, wanted."user", wanted.session, at_time, at_time
    from unnest(tenants, users, sessions, opening) as wanted (tenant, "user", session, is_opening)
    where wanted.is_opening and not exists (
      select from harborage_sessions as known
      where known.tenant = wanted.tenant and known."user" = wanted."user" and known.session = wanted.session
    )
    order by wanted.tenant, wanted."user", wanted.session
    on conflict (tenant, "user", session) do nothing
    returning num
  )
  select coalesce(array_agg(num), '{}') from made
$$;

-- Note that the sessions are seen in which the accepted commits start runs. Somebody else who writes a session just now
-- sees it, too.
create function harborage_see_sessions(commits jsonb, nums bigint[], accepted integer[], at_time bigint)
returns void language plpgsql as $$
begin
  update harborage_sessions set seen_at = at_time where num = any(array(
    select num from harborage_sessions
    where closed_at is null and seen_at < at_time and num = any(array(
      select nums[(started ->> 'who')::integer]
      from jsonb_array_elements(commits) with ordinality as kept (body, nth)
      cross join jsonb_array_elements(kept.body -> 'starts') as started
      where kept.nth = any(accepted)
    ))
    for no key update skip locked
  ));
end
$$;

create function harborage_lock(
  nums bigint[], runs text[], ends text[], pause_tokens text[], groups text[], waits boolean
) returns void language plpgsql as $$
begin
  if cardinality(ends) = 0 and cardinality(pause_tokens) = 0 then
    perform from harborage_runs where run_id = any(runs) order by num for no key update;
  else
    perform from harborage_runs where num = any(array(
      select run.num from harborage_runs as run where run.run_id = any(runs)
      union all
      select run.num
      from harborage_pauses as pause join harborage_runs as run on run.run_id = pause.run
      where pause.token = any(pause_tokens)
      union all
      select waiting.num from harborage_runs as waiting
      where waiting.awaits = any(ends) and waiting.awaits is not null
      union all
      select waiting.num
      from harborage_runs as ended
      join harborage_runs as waiting on waiting.awaits = ended.grp and waiting.awaits is not null
      where ended.run_id = any(ends)
    )) order by num for no key update;
  end if;
  if cardinality(ends) > 0 or cardinality(groups) > 0 then
    perform from harborage_groups where num = any(array(
      select grp.num from harborage_groups as grp where grp.session = any(nums) and grp.group_id = any(groups)
      union all
      select grp.num
      from harborage_runs as run
      join harborage_groups as grp on grp.session = run.session and grp.group_id = any(groups)
      where run.run_id = any(runs)
      union all
      select grp.num
      from harborage_runs as run join harborage_groups as grp on grp.session = run.session and grp.group_id = run.grp
      where run.run_id = any(ends)
    )) order by num for no key update;
  end if;
  if cardinality(pause_tokens) > 0 then
    perform from harborage_pauses where token = any(pause_tokens) order by num for no key update;
  end if;
  if waits then
    -- Two waits in two transactions may be a circle that neither of them sees.
    perform pg_advisory_xact_lock(hashtextextended('harborage waits in ' || current_schema(), 0));
  end if;
end
$$;

-- One commit: `again` for one that was applied before, `refused` with a reason and the part that it is `at` and what
-- was `found`; otherwise which pauses were `opened` and which controls `sent` for the first time, and which runs were
-- `taken`, and the groups that ended members have `left`.
create function harborage_apply(one jsonb, nums bigint[], blobs bytea[], at_time bigint)
returns jsonb language plpgsql as $$
declare
  guard jsonb := one -> 'guard';
  change jsonb := one -> 'change';
  held record;
  refused jsonb;
  answer jsonb := '{}';
  group_left jsonb;
  groups_left jsonb := '[]';
begin
  if guard is not null then
    select num, run_id, session, owner, fence, position, unread, grp into held
    from harborage_runs where run_id = guard ->> 'run';
    if not found or held.fence <> (guard ->> 'fence')::bigint then
      return '{"refused": "lease"}';
    end if;
    if held.owner is distinct from guard ->> 'worker' or held.position <> (guard ->> 'position')::integer then
      return harborage_again(guard, held.num, held.position, blobs);
    end if;
    if change is not null then
      refused := harborage_change_refusal(one, change, held.num, held.run_id, held.session, held.unread);
    end if;
  end if;
  if one ?| '{starts,moves,groups,patches,settles,sends}' then
    refused := coalesce(harborage_refusal(one, nums), refused);
  end if;
  if refused is not null then
    return refused;
  end if;
  if one ? 'groups' then
    perform harborage_groups_changed(one, nums, at_time);
  end if;
  if one ? 'starts' then
    perform harborage_runs_started(one, nums, blobs, at_time);
  end if;
  if one ? 'moves' then
    groups_left := harborage_runs_moved(one, blobs, at_time);
  end if;
  if one ? 'patches' then
    perform harborage_patches_decided(one, nums, at_time);
  end if;
  if one ? 'drops' then
    perform harborage_answers_dropped(one);
  end if;
  if one ?| '{opens,settles}' then
    answer := jsonb_build_object('opened', harborage_pauses_changed(one, nums, blobs, at_time));
  end if;
  if one ? 'sends' then
    answer := answer || jsonb_build_object('sent', harborage_controls_sent(one, blobs, at_time));
  end if;
  if one ? 'wakes' then
    update harborage_runs set woken = true
    where run_id = any(array(select jsonb_array_elements_text(one -> 'wakes')))
      and status < 3 and position > 0 and not woken;
  end if;
  if guard is not null then
    group_left := harborage_step(one, guard, change, blobs, at_time, held.num, held.run_id, held.session, held.grp);
    if group_left is not null then
      groups_left := groups_left || jsonb_build_array(group_left);
    end if;
  end if;
  if groups_left <> '[]' then
    answer := answer || jsonb_build_object('left', groups_left);
  end if;
  if one ? 'take' then
    answer := answer || jsonb_build_object('taken', harborage_taken(one));
  end if;
  return answer;
end
$$;

-- Whether the journal ends with these entries already, under this fence.
create function harborage_again(guard jsonb, run_num bigint, run_position integer, blobs bytea[])
returns jsonb language plpgsql as $$
declare
  before integer := (guard ->> 'position')::integer;
  entries integer := (guard ->> 'entries')::integer;
  first integer := (guard ->> 'first')::integer;
begin
  if entries > 0 and run_position = before + entries and entries = (
    select count(*) from harborage_journal
    where run = run_num and position > before and position <= before + entries
      and data = blobs[first + position - before - 1]
  ) then
    return '{"again": true}';
  end if;
  return '{"refused": "lease"}';
end
$$;
