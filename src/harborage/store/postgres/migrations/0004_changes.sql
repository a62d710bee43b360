-- What a commit writes, once its conditions hold.

-- The owner's part: its entries, bodies and controls, and the change of its row in one update. The group that it has
-- left by its end, if any.
create function harborage_step(
  one jsonb, guard jsonb, change jsonb, blobs bytea[], at_time bigint,
  run_num bigint, own_id text, session_num bigint, own_group text
) returns jsonb language plpgsql as $$
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
    return null;
  end if;
  update harborage_runs set
    position = before + entries, updated_at = at_time, unread = unread - taken,
    status = coalesce((change ->> 'status')::smallint, status), reason = coalesce(change ->> 'reason', reason),
    outcome = coalesce(blobs[(change ->> 'outcome')::integer], outcome),
    blocked = case when change ? 'blocked' then nullif(change ->> 'blocked', '') else blocked end,
    priority = coalesce((change ->> 'priority')::integer, priority),
    attempts = case when change ? 'progress' then 0 else attempts end,
    tool_count = tool_count + coalesce((change ->> 'tool_calls')::bigint, 0),
    tokens = tokens + coalesce((change ->> 'tokens')::bigint, 0),
    cost = cost + coalesce((change ->> 'cost')::bigint, 0),
    owner = case when not is_end and not is_release then owner end,
    wake_at = case when is_release then (change ->> 'wake_at')::bigint when not is_end then wake_at end,
    awaits = case
      when is_end then null when change ? 'awaits' then nullif(change ->> 'awaits', '') else awaits
    end,
    seen_control = case when is_release then coalesce((change ->> 'seen_control')::bigint, 0) else seen_control end,
    woken = case
      when is_release then woken or change ? 'is_ready' or (unread > taken and exists (
        select from harborage_controls as control
        where control.run = run_num and control.consumed is null
          and control.num > coalesce((change ->> 'seen_control')::bigint, 0)
      )) or (
        coalesce(change ->> 'awaits', '') <> '' and harborage_is_over(change ->> 'awaits', session_num)
      )
      else woken and not is_end
    end
  where num = run_num;
  return case when is_end then harborage_end(own_id, session_num, own_group, at_time) end;
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

-- Whether nothing of this name would ever end any more: no live run, no group that has not ended.
create function harborage_is_over(target text, session_num bigint) returns boolean language plpgsql as $$
begin
  return not exists (select from harborage_runs where run_id = target and status < 3) and not exists (
    select from harborage_groups
    where session = session_num and group_id = target and status in ('open', 'sealed', 'ending')
  );
end
$$;

-- What follows from a run's end: its open pauses end, its group counts it out, and who waits for either is woken. The
-- group as it is then, null for a run of none.
create function harborage_end(own_id text, session_num bigint, own_group text, at_time bigint)
returns jsonb language plpgsql as $$
declare
  group_left jsonb;
begin
  update harborage_pauses set status = 'cancelled', settled_at = at_time where run = own_id and status = 'open';
  if own_group is not null then
    update harborage_groups set open_members = open_members - 1
    where session = session_num and group_id = own_group
    returning jsonb_build_array(own_id, group_id, status, members, open_members, fails_fast, retains_turn)
    into group_left;
    perform harborage_wake_waiting(own_group, session_num);
  end if;
  perform harborage_wake_waiting(own_id, null);
  return group_left;
end
$$;

-- Wake who awaits a run, or a group of this session.
create function harborage_wake_waiting(target text, of_session bigint) returns void language plpgsql as $$
begin
  update harborage_runs set woken = true
  where awaits = target and awaits is not null and position > 0 and not woken
    and (of_session is null or session = of_session);
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
        session, group_id, owner, retains_turn, fails_fast, description, status, created_at, sealed_at, deadline
      )
      values (
        nums[(part ->> 'who')::integer], part ->> 'group', part ->> 'owner', part ? 'retains_turn',
        part ? 'fails_fast', part ->> 'description', case when part ? 'is_sealed' then 'sealed' else 'open' end,
        at_time, case when part ? 'is_sealed' then at_time end, (part ->> 'deadline')::bigint
      )
      on conflict (session, group_id) do nothing;
    else
      update harborage_groups set
        status = part ->> 'status', reason = coalesce(nullif(part ->> 'reason', ''), reason),
        sealed_at = case when part ->> 'status' = 'sealed' then at_time else sealed_at end,
        ended_at = case when part ->> 'status' in ('completed', 'cancelled') then at_time else ended_at end,
        outcome = coalesce(part ->> 'outcome', outcome)
      where session = nums[(part ->> 'who')::integer] and group_id = part ->> 'group';
      if part ->> 'status' in ('completed', 'cancelled') then
        perform harborage_wake_waiting(part ->> 'group', nums[(part ->> 'who')::integer]);
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
      retains_turn, asked
    )
    values (
      part ->> 'run', nums[(part ->> 'who')::integer], part ->> 'tenant', part ->> 'user', part ->> 'agent',
      part ->> 'parent', part ->> 'root', part ->> 'group', part ->> 'kind', (part ->> 'priority')::integer,
      (part ->> 'status')::smallint, part ->> 'description', part ->> 'about', at_time, at_time,
      (part ->> 'deadline')::bigint, (part ->> 'entries')::integer, part ->> 'worker',
      case when part ? 'worker' then 1 else 0 end,
      not part ? 'worker' and (part ->> 'entries')::integer > 0, part ->> 'key', part ->> 'fingerprint',
      part ? 'cascades', part ? 'notifies', part ? 'retains_turn', blobs[(part ->> 'asked')::integer]
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
      update harborage_runs set children = children + 1
      where run_id = part ->> 'parent' and session = nums[(part ->> 'who')::integer];
    end if;
    if part ? 'root' then
      update harborage_runs set tree = tree + 1
      where run_id = part ->> 'root' and session = nums[(part ->> 'who')::integer];
    end if;
  end loop;
end
$$;

-- The groups that those have left which it ends.
create function harborage_runs_moved(one jsonb, blobs bytea[], at_time bigint) returns jsonb language plpgsql as $$
declare
  group_left jsonb;
  groups_left jsonb := '[]';
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
      outcome = coalesce(blobs[(part ->> 'outcome')::integer], outcome),
      priority = coalesce((part ->> 'priority')::integer, priority),
      acknowledged = coalesce((part ->> 'acknowledged')::boolean, acknowledged),
      tool_count = tool_count + (part ->> 'tool_calls')::bigint,
      position = position + entries, updated_at = at_time,
      wake_at = case when not is_end then wake_at end,
      awaits = case
        when is_end then null when part ? 'awaits' then nullif(part ->> 'awaits', '') else awaits
      end,
      woken = woken and not is_end
    where num = held.num;
    if entries > 0 then
      perform harborage_append(
        held.num, held.position, entries, (part ->> 'first')::integer, part -> 'crcs', blobs
      );
    end if;
    if is_end then
      group_left := harborage_end(part ->> 'run', held.session, held.grp, at_time);
      if group_left is not null then
        groups_left := groups_left || jsonb_build_array(group_left);
      end if;
    end if;
  end loop;
  return groups_left;
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

-- Which pauses were not opened before; each that is settled wakes its run.
create function harborage_pauses_changed(one jsonb, nums bigint[], blobs bytea[], at_time bigint)
returns boolean[] language plpgsql as $$
declare
  part jsonb;
  run_of_pause text;
  opened boolean[] := '{}';
begin
  if one ? 'opens' then
    for part in select value from jsonb_array_elements(one -> 'opens') loop
      insert into harborage_pauses (
        token, run, session, tenant, "user", reason, status, opened_at, deadline, data
      )
      values (
        part ->> 'token', part ->> 'run', nums[(part ->> 'who')::integer], part ->> 'tenant', part ->> 'user',
        part ->> 'reason', 'open', coalesce((part ->> 'at')::bigint, at_time), (part ->> 'deadline')::bigint, blobs[(part ->> 'data')::integer]
      )
      on conflict (token) do nothing;
      opened := opened || found;
    end loop;
  end if;
  if one ? 'settles' then
    for part in select value from jsonb_array_elements(one -> 'settles') loop
      update harborage_pauses set
        status = part ->> 'status', settled_at = coalesce((part ->> 'at')::bigint, at_time), settled_by = part ->> 'by',
        answer = blobs[(part ->> 'answer')::integer]
      where token = part ->> 'token' and status = 'open'
      returning run into run_of_pause;
      update harborage_runs set woken = true
      where run_id = run_of_pause and status < 3 and position > 0 and not woken;
    end loop;
  end if;
  return opened;
end
$$;

-- Which controls were not sent before; each of those wakes its run, unless a worker holds it: that one looks for itself.
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
      update harborage_runs set unread = unread + 1, woken = woken or (owner is null and position > 0)
      where num = run_num;
      update harborage_pauses set answering = part ->> 'event' where token = part ->> 'answers' and status = 'open';
    end if;
  end loop;
  return sent;
end
$$;

-- Let other answers be sent in the place of those that came to nothing.
create function harborage_answers_dropped(one jsonb) returns void language plpgsql as $$
declare
  part jsonb;
begin
  for part in select value from jsonb_array_elements(one -> 'drops') loop
    update harborage_pauses set answering = ''
    where token = part ->> 'token' and answering = part ->> 'event' and status = 'open';
  end loop;
end
$$;

-- Claim what the commit's answers and controls woke, for the worker that it names.
create function harborage_taken(one jsonb) returns jsonb language plpgsql as $$
declare
  taken jsonb;
begin
  with free as (
    update harborage_runs set
      owner = one ->> 'take', fence = fence + 1, attempts = attempts + 1, woken = false, wake_at = null
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

-- Delete ended runs with all that only they have, and the groups that have ended with the last of their members; how
-- many there were. The reference from a name to its body keeps a body that others name.
create function harborage_delete(wanted text[]) returns integer language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
  nums bigint[];
  names text[];
  group_nums bigint[];
begin
  select array_agg(ended.num), array_agg(ended.run_id) into nums, names
  from (
    select num, run_id from harborage_runs where run_id = any(wanted) and status >= 3 order by num for update
  ) as ended;
  if nums is null then
    return 0;
  end if;
  -- Whoever deletes another member of one of these groups waits here, and then sees that ours are gone.
  group_nums := array(
    select one.num from harborage_groups as one
    where one.status in ('completed', 'cancelled') and (one.group_id, one.session) in (
      select grp, session from harborage_runs where num = any(nums) and grp is not null
    )
    order by one.num
    for update
  );
  delete from harborage_journal where run = any(nums);
  delete from harborage_controls where run = any(nums);
  delete from harborage_pauses where run = any(names);
  with named as (
    delete from harborage_run_bodies where run = any(nums) returning body
  )
  delete from harborage_bodies where num = any(array(
    select named.body from named
    where not exists (
      select from harborage_run_bodies as other where other.body = named.body and other.run <> all(nums)
    )
  ));
  delete from harborage_runs where num = any(nums);
  delete from harborage_groups as one where one.num = any(group_nums) and not exists (
    select from harborage_runs as run
    where run.grp = one.group_id and run.grp is not null and run.session = one.session
  );
  return cardinality(nums);
end
$$;
