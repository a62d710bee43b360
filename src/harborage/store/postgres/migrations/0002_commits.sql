-- What changes the tables. Each change is one call of one function, which is one transaction: no client ever holds a
-- lock while it thinks, and each of the statements in here sees what others have committed before it.
--
-- Locks are taken in one order, so that no two changes wait for each other: the writer's own row, new sessions, runs by
-- their number, groups by theirs, and last the lock under which events are numbered.
--
-- Every statement looks for its rows by their keys, whatever the values: a plan is made once for a connection, and never
-- reads a whole table, however small that is just then.

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
-- `pause_tokens` and `groups` are what must be locked: the runs that are written or awaited, the runs and groups that end,
-- the pauses that are settled, and the groups that members join or that are awaited.
create function harborage_commit(
  by_writer text, as_batch bigint, at_time bigint, commits jsonb, blobs bytea[],
  tenants text[], users text[], sessions text[], opening boolean[],
  runs text[], ends text[], pause_tokens text[], groups text[]
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
  perform harborage_lock(nums, runs, ends, pause_tokens, groups);
  for one in select value from jsonb_array_elements(commits) loop
    answer := harborage_apply(one, nums, blobs, at_time);
    answers := answers || answer;
    if not answer ?| '{refused,again}' then
      accepted := accepted || cardinality(answers);
      events := events + coalesce(jsonb_array_length(one -> 'events'), 0);
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

create function harborage_lock(nums bigint[], runs text[], ends text[], pause_tokens text[], groups text[])
returns void language plpgsql as $$
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
end
$$;

-- One commit: `again` for one that was applied before, `refused` with a reason and the part that it is `at` and what
-- was `found`; otherwise which controls were `sent` for the first time and which runs were `taken`.
create function harborage_apply(one jsonb, nums bigint[], blobs bytea[], at_time bigint)
returns jsonb language plpgsql as $$
declare
  guard jsonb := one -> 'guard';
  change jsonb := one -> 'change';
  held record;
  refused jsonb;
  answer jsonb := '{}';
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
    perform harborage_runs_moved(one, blobs, at_time);
  end if;
  if one ? 'patches' then
    perform harborage_patches_decided(one, nums, at_time);
  end if;
  if one ?| '{opens,settles}' then
    perform harborage_pauses_changed(one, nums, blobs, at_time);
  end if;
  if one ? 'sends' then
    answer := jsonb_build_object('sent', harborage_controls_sent(one, blobs, at_time));
  end if;
  if one ? 'wakes' then
    update harborage_runs set woken = true
    where run_id = any(array(select jsonb_array_elements_text(one -> 'wakes'))) and status < 3 and not woken;
  end if;
  if guard is not null then
    perform harborage_step(one, guard, change, blobs, at_time, held.num, held.run_id, held.session, held.grp);
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

-- ── Conditions ──────────────────────────────────────────────────────────────────────────────────────────────────────

-- The first condition that does not hold, of all but those of the guard and its change.
create function harborage_refusal(one jsonb, nums bigint[]) returns jsonb language plpgsql as $$
declare
  part jsonb;
  place integer;
  refused jsonb;
  held record;
begin
  if one ? 'starts' then
    for part, place in select value, ordinality - 1 from jsonb_array_elements(one -> 'starts') with ordinality loop
      refused := harborage_start_refusal(one, part, place, nums);
      if refused is not null then
        return refused;
      end if;
    end loop;
  end if;
  if one ? 'moves' then
    for part, place in select value, ordinality - 1 from jsonb_array_elements(one -> 'moves') with ordinality loop
      select status, owner into held from harborage_runs where run_id = part ->> 'run';
      if not found then
        return jsonb_build_object('refused', 'no_run', 'found', part ->> 'run');
      end if;
      if not part -> 'expected' @> to_jsonb(held.status) or (held.owner is not null and part ? 'status') then
        return jsonb_build_object('refused', 'move', 'at', place, 'found', held.status::text);
      end if;
    end loop;
  end if;
  if one ? 'groups' then
    for part, place in select value, ordinality - 1 from jsonb_array_elements(one -> 'groups') with ordinality loop
      continue when not part ? 'expected';
      select status, open_members into held
      from harborage_groups where session = nums[(part ->> 'who')::integer] and group_id = part ->> 'group';
      if not found then
        return jsonb_build_object('refused', 'no_group', 'found', part ->> 'group');
      end if;
      if not part -> 'expected' @> to_jsonb(held.status) then
        return jsonb_build_object('refused', 'group', 'at', place, 'found', held.status);
      end if;
      if part ? 'is_empty' and held.open_members > 0 then
        return jsonb_build_object('refused', 'group_busy', 'at', place, 'found', held.open_members::text);
      end if;
    end loop;
  end if;
  if one ? 'patches' then
    for part, place in select value, ordinality - 1 from jsonb_array_elements(one -> 'patches') with ordinality loop
      continue when not part ? 'decision';
      select decision into held
      from harborage_patches
      where session = nums[(part ->> 'who')::integer] and patch_id = part ->> 'patch' for no key update;
      if not found then
        return jsonb_build_object('refused', 'no_patch', 'found', part ->> 'patch');
      end if;
      if held.decision <> '' then
        return jsonb_build_object('refused', 'patch', 'at', place, 'found', held.decision);
      end if;
    end loop;
  end if;
  if one ? 'settles' then
    for part in select value from jsonb_array_elements(one -> 'settles') loop
      select status into held from harborage_pauses where token = part ->> 'token';
      if not found then
        return jsonb_build_object('refused', 'no_pause', 'found', part ->> 'token');
      end if;
      if held.status <> 'open' then
        return jsonb_build_object('refused', 'settled', 'found', part ->> 'token');
      end if;
    end loop;
  end if;
  if one ? 'sends' then
    for part, place in select value, ordinality - 1 from jsonb_array_elements(one -> 'sends') with ordinality loop
      select num, status, unread into held from harborage_runs where run_id = part ->> 'run';
      if not found then
        return jsonb_build_object('refused', 'no_run', 'found', part ->> 'run');
      end if;
      if held.status >= 3 then
        return jsonb_build_object('refused', 'over', 'at', place, 'found', held.status::text);
      end if;
      if held.unread >= (part ->> 'limit')::integer and not exists (
        select from harborage_controls where run = held.num and event_id = part ->> 'event'
      ) then
        return jsonb_build_object('refused', 'full', 'at', place);
      end if;
    end loop;
  end if;
  return null;
end
$$;

create function harborage_start_refusal(one jsonb, part jsonb, place integer, nums bigint[])
returns jsonb language plpgsql as $$
declare
  session_num bigint := nums[(part ->> 'who')::integer];
  known text;
  group_status text;
begin
  select run_id into known from harborage_runs where run_id = part ->> 'run';
  if known is null and part ? 'key' then
    select run_id into known from harborage_runs where session = session_num and idem = part ->> 'key';
  end if;
  if known is not null then
    return jsonb_build_object('refused', 'known', 'found', known);
  end if;
  if part ? 'max_children' and exists (
    select from harborage_runs where run_id = part ->> 'parent' and children >= (part ->> 'max_children')::integer
  ) then
    return jsonb_build_object('refused', 'children', 'at', place);
  end if;
  if part ? 'max_tree' and exists (
    select from harborage_runs where run_id = part ->> 'root' and tree >= (part ->> 'max_tree')::integer
  ) then
    return jsonb_build_object('refused', 'tree', 'at', place);
  end if;
  if part ? 'group' then
    select status into group_status
    from harborage_groups where session = session_num and group_id = part ->> 'group';
    if group_status <> 'open' then
      return jsonb_build_object('refused', 'closed', 'at', place, 'found', group_status);
    end if;
    if group_status is null and not coalesce(one -> 'groups', '[]') @> jsonb_build_array(
      jsonb_build_object('group', part ->> 'group', 'is_new', true)
    ) then
      return jsonb_build_object('refused', 'no_group', 'found', part ->> 'group');
    end if;
  end if;
  return null;
end
$$;

create function harborage_change_refusal(
  one jsonb, change jsonb, run_num bigint, own_id text, session_num bigint, unread_count integer
) returns jsonb language plpgsql as $$
begin
  if (change ->> 'status')::integer >= 3 and unread_count > 0 and exists (
    select from harborage_controls
    where run = run_num and consumed is null and not coalesce(one -> 'consumed', '[]') @> to_jsonb(num)
  ) then
    return '{"refused": "left"}';
  end if;
  if change ? 'awaits' and exists (
    with recursive leads_to (target) as (
      select (change ->> 'awaits') collate "C"
      union
      select next.target
      from leads_to cross join lateral (
        select awaits from harborage_runs where run_id = leads_to.target and awaits is not null
        union all
        select run_id from harborage_runs
        where grp = leads_to.target and grp is not null and session = session_num and status < 3
      ) as next (target)
    )
    select from leads_to where target = own_id
  ) then
    return '{"refused": "cycle"}';
  end if;
  return null;
end
$$;

-- ── Changes ─────────────────────────────────────────────────────────────────────────────────────────────────────────

-- The owner's part: its entries, bodies and controls, and the change of its row in one update.
create function harborage_step(
  one jsonb, guard jsonb, change jsonb, blobs bytea[], at_time bigint,
  run_num bigint, own_id text, session_num bigint, own_group text
) returns void language plpgsql as $$
declare
  before integer := (guard ->> 'position')::integer;
  entries integer := (guard ->> 'entries')::integer;
  taken integer := 0;
  is_end boolean := coalesce((change ->> 'status')::integer >= 3, false);
  is_release boolean := coalesce(change ? 'release', false);
begin
  if entries > 0 then
    perform harborage_append(run_num, before, entries, (guard ->> 'first')::integer, guard -> 'crcs', blobs);
  end if;
  if one ? 'bodies' then
    perform harborage_name(run_num, one -> 'bodies', blobs);
  end if;
  if one ? 'consumed' then
    update harborage_controls set consumed = before + entries, data = ''
    where num = any(array(select value::bigint from jsonb_array_elements_text(one -> 'consumed')))
      and run = run_num and consumed is null;
    get diagnostics taken = row_count;
  end if;
  if change is null then
    update harborage_runs set position = before + entries, updated_at = at_time, unread = unread - taken
    where num = run_num;
    return;
  end if;
  update harborage_runs set
    position = before + entries, updated_at = at_time, unread = unread - taken,
    status = coalesce((change ->> 'status')::smallint, status), reason = coalesce(change ->> 'reason', reason),
    blocked = case when change ? 'blocked' then nullif(change ->> 'blocked', '') else blocked end,
    priority = coalesce((change ->> 'priority')::integer, priority),
    attempts = case when change ? 'progress' then 0 else attempts end,
    tool_count = tool_count + coalesce((change ->> 'tool_calls')::bigint, 0),
    tokens = tokens + coalesce((change ->> 'tokens')::bigint, 0),
    cost = cost + coalesce((change ->> 'cost')::bigint, 0),
    owner = case when not is_end and not is_release then owner end,
    wake_at = case when is_release then (change ->> 'wake_at')::bigint when not is_end then wake_at end,
    awaits = case when is_release then change ->> 'awaits' when not is_end then awaits end,
    woken = case
      when is_release then woken or change ? 'is_ready' or unread > taken or (
        change ? 'awaits' and harborage_is_over(change ->> 'awaits', session_num)
      )
      else woken and not is_end
    end
  where num = run_num;
  if is_end then
    perform harborage_end(own_id, session_num, own_group, at_time);
  end if;
end
$$;

create function harborage_append(
  run_num bigint, before integer, entries integer, first integer, crcs jsonb, blobs bytea[]
) returns void language plpgsql as $$
begin
  insert into harborage_journal (run, position, crc, data)
  select run_num, before + nth, (crcs ->> (nth - 1))::bigint, blobs[first + nth - 1]
  from generate_series(1, entries) as nth;
end
$$;

-- Keep what the run's entries name.
create function harborage_name(run_num bigint, bodies jsonb, blobs bytea[]) returns void language plpgsql as $$
begin
  insert into harborage_bodies (digest, data)
  select body ->> 0, blobs[(body ->> 1)::integer] from jsonb_array_elements(bodies) as body
  on conflict (digest) do nothing;
  insert into harborage_run_bodies (run, body)
  select run_num, kept.num
  from jsonb_array_elements(bodies) as body join harborage_bodies as kept on kept.digest = body ->> 0
  on conflict (run, body) do nothing;
end
$$;

-- Whether nothing of this name would ever end any more: no live run, no group that is open or sealed.
create function harborage_is_over(target text, session_num bigint) returns boolean language plpgsql as $$
begin
  return not exists (select from harborage_runs where run_id = target and status < 3) and not exists (
    select from harborage_groups
    where session = session_num and group_id = target and status in ('open', 'sealed')
  );
end
$$;

-- What follows from a run's end: its open pauses end, its group counts it out, and who waits for either is woken.
create function harborage_end(own_id text, session_num bigint, own_group text, at_time bigint)
returns void language plpgsql as $$
begin
  update harborage_pauses set status = 'cancelled', settled_at = at_time where run = own_id and status = 'open';
  if own_group is not null then
    update harborage_groups set open_members = open_members - 1
    where session = session_num and group_id = own_group;
    perform harborage_wake_waiting(own_group);
  end if;
  perform harborage_wake_waiting(own_id);
end
$$;

create function harborage_wake_waiting(target text) returns void language plpgsql as $$
begin
  update harborage_runs set woken = true where awaits = target and awaits is not null and not woken;
end
$$;

create function harborage_groups_changed(one jsonb, nums bigint[], at_time bigint)
returns void language plpgsql as $$
declare
  part jsonb;
begin
  for part in select value from jsonb_array_elements(one -> 'groups') loop
    if part ? 'is_new' then
      insert into harborage_groups (
        session, group_id, owner, retains_turn, fails_fast, description, status, created_at, deadline
      )
      values (
        nums[(part ->> 'who')::integer], part ->> 'group', part ->> 'owner', part ? 'retains_turn',
        part ? 'fails_fast', part ->> 'description', 'open', at_time, (part ->> 'deadline')::bigint
      )
      on conflict (session, group_id) do nothing;
    else
      update harborage_groups set
        status = part ->> 'status', reason = part ->> 'reason',
        sealed_at = case when part ->> 'status' = 'sealed' then at_time else sealed_at end,
        ended_at = case when part ->> 'status' in ('completed', 'cancelled') then at_time else ended_at end
      where session = nums[(part ->> 'who')::integer] and group_id = part ->> 'group';
      if part ->> 'status' in ('completed', 'cancelled') then
        perform harborage_wake_waiting(part ->> 'group');
      end if;
    end if;
  end loop;
end
$$;

create function harborage_runs_started(one jsonb, nums bigint[], blobs bytea[], at_time bigint)
returns void language plpgsql as $$
declare
  part jsonb;
  run_num bigint;
begin
  for part in select value from jsonb_array_elements(one -> 'starts') loop
    insert into harborage_runs (
      run_id, session, tenant, "user", agent, parent, root, grp, kind, priority, status, description, about,
      created_at, updated_at, deadline, position, owner, fence, woken, idem, fingerprint, cascades, notifies,
      retains_turn
    )
    values (
      part ->> 'run', nums[(part ->> 'who')::integer], part ->> 'tenant', part ->> 'user', part ->> 'agent',
      part ->> 'parent', part ->> 'root', part ->> 'group', part ->> 'kind', (part ->> 'priority')::integer,
      (part ->> 'status')::smallint, part ->> 'description', part ->> 'about', at_time, at_time,
      (part ->> 'deadline')::bigint, (part ->> 'entries')::integer, part ->> 'worker',
      case when part ? 'worker' then 1 else 0 end, not part ? 'worker', part ->> 'key', part ->> 'fingerprint',
      part ? 'cascades', part ? 'notifies', part ? 'retains_turn'
    )
    returning num into run_num;
    perform harborage_append(
      run_num, 0, (part ->> 'entries')::integer, (part ->> 'first')::integer, part -> 'crcs', blobs
    );
    if one ? 'bodies' and not one ? 'guard' then
      perform harborage_name(run_num, one -> 'bodies', blobs);
    end if;
    if part ? 'group' then
      update harborage_groups set members = members + 1, open_members = open_members + 1
      where session = nums[(part ->> 'who')::integer] and group_id = part ->> 'group';
    end if;
    if part ? 'parent' then
      update harborage_runs set children = children + 1 where run_id = part ->> 'parent';
    end if;
    if part ? 'root' then
      update harborage_runs set tree = tree + 1 where run_id = part ->> 'root';
    end if;
  end loop;
end
$$;

create function harborage_runs_moved(one jsonb, blobs bytea[], at_time bigint) returns void language plpgsql as $$
declare
  part jsonb;
  held record;
  entries integer;
  is_end boolean;
begin
  for part in select value from jsonb_array_elements(one -> 'moves') loop
    select num, session, position, status, grp into held from harborage_runs where run_id = part ->> 'run';
    entries := (part ->> 'entries')::integer;
    is_end := coalesce((part ->> 'status')::integer >= 3, false) and held.status < 3;
    update harborage_runs set
      status = coalesce((part ->> 'status')::smallint, status), reason = coalesce(part ->> 'reason', reason),
      priority = coalesce((part ->> 'priority')::integer, priority),
      acknowledged = coalesce((part ->> 'acknowledged')::boolean, acknowledged),
      tool_count = tool_count + (part ->> 'tool_calls')::bigint,
      position = position + entries, updated_at = at_time,
      wake_at = case when not is_end then wake_at end, awaits = case when not is_end then awaits end,
      woken = woken and not is_end
    where num = held.num;
    if entries > 0 then
      perform harborage_append(
        held.num, held.position, entries, (part ->> 'first')::integer, part -> 'crcs', blobs
      );
    end if;
    if is_end then
      perform harborage_end(part ->> 'run', held.session, held.grp, at_time);
    end if;
  end loop;
end
$$;

create function harborage_patches_decided(one jsonb, nums bigint[], at_time bigint)
returns void language plpgsql as $$
declare
  part jsonb;
begin
  for part in select value from jsonb_array_elements(one -> 'patches') loop
    insert into harborage_patches (session, patch_id, decision, created_at)
    values (nums[(part ->> 'who')::integer], part ->> 'patch', '', at_time)
    on conflict (session, patch_id) do nothing;
    if part ? 'decision' then
      update harborage_patches set decision = part ->> 'decision', decided_at = at_time
      where session = nums[(part ->> 'who')::integer] and patch_id = part ->> 'patch';
    end if;
  end loop;
end
$$;

create function harborage_pauses_changed(one jsonb, nums bigint[], blobs bytea[], at_time bigint)
returns void language plpgsql as $$
declare
  part jsonb;
  run_of_pause text;
begin
  if one ? 'opens' then
    for part in select value from jsonb_array_elements(one -> 'opens') loop
      insert into harborage_pauses (
        token, run, session, tenant, "user", reason, status, opened_at, deadline, data
      )
      values (
        part ->> 'token', part ->> 'run', nums[(part ->> 'who')::integer], part ->> 'tenant', part ->> 'user',
        part ->> 'reason', 'open', at_time, (part ->> 'deadline')::bigint, blobs[(part ->> 'data')::integer]
      )
      on conflict (token) do nothing;
    end loop;
  end if;
  if one ? 'settles' then
    for part in select value from jsonb_array_elements(one -> 'settles') loop
      update harborage_pauses set
        status = part ->> 'status', settled_at = at_time, settled_by = part ->> 'by',
        answer = blobs[(part ->> 'answer')::integer]
      where token = part ->> 'token' and status = 'open'
      returning run into run_of_pause;
      update harborage_runs set woken = true where run_id = run_of_pause and status < 3 and not woken;
    end loop;
  end if;
end
$$;

-- Which controls were not sent before; each of those wakes its run.
create function harborage_controls_sent(one jsonb, blobs bytea[], at_time bigint)
returns boolean[] language plpgsql as $$
declare
  part jsonb;
  run_num bigint;
  sent boolean[] := '{}';
begin
  for part in select value from jsonb_array_elements(one -> 'sends') loop
    select num into run_num from harborage_runs where run_id = part ->> 'run';
    insert into harborage_controls (run, event_id, type, sent_at, data)
    values (run_num, part ->> 'event', part ->> 'type', at_time, blobs[(part ->> 'data')::integer])
    on conflict (run, event_id) do nothing;
    sent := sent || found;
    if found then
      update harborage_runs set unread = unread + 1, woken = true where num = run_num;
    end if;
  end loop;
  return sent;
end
$$;

-- Claim what the commit's answers and controls woke, for the worker that it names.
create function harborage_taken(one jsonb) returns jsonb language plpgsql as $$
declare
  taken jsonb;
begin
  with free as (
    update harborage_runs set
      owner = one ->> 'take', fence = fence + 1, attempts = attempts + 1, woken = false, wake_at = null, awaits = null
    where run_id = any(array(
        select pause.run
        from jsonb_array_elements(one -> 'settles') as part
        join harborage_pauses as pause on pause.token = part ->> 'token'
        union all
        select part ->> 'run' from jsonb_array_elements(one -> 'sends') as part
      ))
      and owner is null and woken and blocked is null and status < 3
    returning run_id, fence
  )
  select coalesce(jsonb_agg(jsonb_build_array(run_id, fence)), '[]') into taken from free;
  return taken;
end
$$;

-- ── Events ──────────────────────────────────────────────────────────────────────────────────────────────────────────

-- Number and keep the events of the accepted commits, of which there are so many; for each commit its first sequence
-- and place. Only to be called under the lock for it.
create function harborage_publish(
  commits jsonb, nums bigint[], blobs bytea[], accepted integer[], events integer, at_time bigint
) returns table (nth integer, first bigint, place bigint) language plpgsql as $$
declare
  base bigint := nextval('harborage_sequence');
begin
  perform nextval('harborage_sequence') from generate_series(2, events);
  return query
  with published as materialized (
    select
      kept.nth::integer as commit, nums[(kept.body ->> 'who')::integer] as session, event.body as event,
      row_number() over (order by kept.nth, event.nth) as number,
      row_number() over (partition by nums[(kept.body ->> 'who')::integer] order by kept.nth, event.nth) as within
    from jsonb_array_elements(commits) with ordinality as kept (body, nth)
    cross join jsonb_array_elements(kept.body -> 'events') with ordinality as event (body, nth)
    where kept.nth = any(accepted)
  ),
  counted as (
    update harborage_sessions as session set events = session.events + more.events, seen_at = at_time
    from (select published.session, count(*) as events from published group by published.session) as more
    where session.num = more.session and session.num = any(nums)
    returning session.num, session.events - more.events as before
  ),
  numbered as materialized (
    select
      published.commit, published.session, published.event, base + (published.number - 1) * 4096 as sequence,
      counted.before + published.within as place
    from published join counted on counted.num = published.session
  ),
  kept as (
    insert into harborage_events (sequence, session, place, run, type, at, crc, data)
    select
      numbered.sequence, numbered.session, numbered.place, numbered.event ->> 1, numbered.event ->> 0,
      coalesce((numbered.event ->> 2)::bigint, at_time), (numbered.event ->> 3)::bigint,
      blobs[(numbered.event ->> 4)::integer]
    from numbered order by numbered.sequence
  )
  select numbered.commit, min(numbered.sequence), min(numbered.place) from numbered group by numbered.commit;
end
$$;

-- ── Claims ──────────────────────────────────────────────────────────────────────────────────────────────────────────

-- Take runs that are ready; their numbers, highest priority first, then oldest. It waits for nobody: what somebody
-- else is changing just now is left for the next time.
create function harborage_claim(
  by_writer text, as_batch bigint, at_time bigint, for_worker text, of_agent text, at_most integer, max_attempts integer
) returns jsonb language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
  known jsonb := harborage_known(by_writer, as_batch);
  claimed jsonb;
begin
  if known is not null then
    return known;
  end if;
  with due as materialized (
    select num from harborage_runs
    where wake_at is not null and wake_at <= at_time and owner is null and not woken
    order by wake_at limit 1000
    for no key update skip locked
  )
  update harborage_runs as run set woken = true from due where run.num = due.num;
  with ready as materialized (
    select num, attempts from harborage_runs
    where owner is null and woken and blocked is null and status < 3 and (of_agent = '' or agent in ('', of_agent))
    order by priority desc, num limit at_most
    for no key update skip locked
  ),
  stuck as (
    update harborage_runs as run set blocked = 'claimed ' || run.attempts || ' times without progress'
    from ready where run.num = ready.num and ready.attempts >= max_attempts
  ),
  taken as (
    update harborage_runs as run set
      owner = for_worker, fence = run.fence + 1, attempts = run.attempts + 1, woken = false, wake_at = null,
      awaits = null, status = greatest(run.status, 1)
    from ready where run.num = ready.num and ready.attempts < max_attempts
    returning run.num, run.priority
  )
  select coalesce(jsonb_agg(num order by priority desc, num), '[]') into claimed from taken;
  return harborage_keep(by_writer, as_batch, claimed);
end
$$;
