-- When a commit is taken: the conditions that are looked at before its first write, under the locks of its batch.

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
      select status, owner, session into held from harborage_runs where run_id = part ->> 'run';
      if not found then
        return jsonb_build_object('refused', 'no_run', 'found', part ->> 'run');
      end if;
      if not part -> 'expected' @> to_jsonb(held.status) or (held.owner is not null and part ? 'status') then
        return jsonb_build_object('refused', 'move', 'at', place, 'found', held.status::text);
      end if;
      if part ->> 'awaits' <> '' and harborage_leads_back(part ->> 'awaits', part ->> 'run', held.session) then
        return jsonb_build_object('refused', 'cycle', 'at', place, 'found', part ->> 'run');
      end if;
    end loop;
  end if;
  if one ? 'groups' then
    for part, place in select value, ordinality - 1 from jsonb_array_elements(one -> 'groups') with ordinality loop
      continue when not part ?| '{expected,is_sealed}';
      select session, status, open_members, members, owner into held
      from harborage_groups where session = nums[(part ->> 'who')::integer] and group_id = part ->> 'group';
      if part ? 'is_sealed' then
        if found then
          return jsonb_build_object('refused', 'group', 'at', place, 'found', held.status);
        end if;
        continue;
      end if;
      if not found then
        return jsonb_build_object('refused', 'no_group', 'found', part ->> 'group');
      end if;
      if not part -> 'expected' @> to_jsonb(held.status) then
        return jsonb_build_object('refused', 'group', 'at', place, 'found', held.status);
      end if;
      if part ? 'is_empty' and held.open_members > 0
        and held.open_members > harborage_ending(one, held.session, part ->> 'group') then
        return jsonb_build_object('refused', 'group_busy', 'at', place, 'found', held.open_members::text);
      end if;
      if held.members <> (part ->> 'members')::integer or held.owner <> part ->> 'owner' then
        return jsonb_build_object(
          'refused', 'group_other', 'at', place,
          'found', format('owned by %s, with %s members', held.owner, held.members)
        );
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
      if part ? 'answers' then
        select status, answering into held from harborage_pauses where token = part ->> 'answers';
        if found and held.answering <> part ->> 'event' and (held.status <> 'open' or held.answering <> '') then
          return jsonb_build_object(
            'refused', case when held.status = 'open' then 'answered' else 'settled' end, 'found', part ->> 'answers'
          );
        end if;
      end if;
    end loop;
  end if;
  return null;
end
$$;

-- How many members of a group the commit itself ends.
create function harborage_ending(one jsonb, of_session bigint, of_group text) returns bigint language plpgsql as $$
begin
  return count(*) from harborage_runs
  where session = of_session and grp = of_group and status < 3 and run_id = any(array(
    select one -> 'guard' ->> 'run' where (one -> 'change' ->> 'status')::integer >= 3
    union
    select part ->> 'run' from jsonb_array_elements(coalesce(one -> 'moves', '[]')) as part
    where (part ->> 'status')::integer >= 3
  ));
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
  if not part ? 'parent' then
    perform from harborage_sessions where num = session_num for key share;
    if exists (select from harborage_sessions where num = session_num and closed_at is not null) then
      return jsonb_build_object('refused', 'session', 'at', place);
    end if;
  end if;
  if part ? 'max_children' and exists (
    select from harborage_runs
    where run_id = part ->> 'parent' and session = session_num and children >= (part ->> 'max_children')::integer
  ) then
    return jsonb_build_object('refused', 'children', 'at', place);
  end if;
  if part ? 'max_tree' and exists (
    select from harborage_runs
    where run_id = part ->> 'root' and session = session_num and tree >= (part ->> 'max_tree')::integer
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
  if change ->> 'awaits' <> '' and harborage_leads_back(change ->> 'awaits', own_id, session_num) then
    return jsonb_build_object('refused', 'cycle', 'found', own_id);
  end if;
  return null;
end
$$;

-- Whether a wait for the target leads back to the run: from a run to what it awaits, from a group to its live members.
-- What has ended leads nowhere. A group is one of the session of who awaits it.
create function harborage_leads_back(target text, own_id text, session_num bigint) returns boolean language plpgsql as $$
begin
  return exists (
    with recursive leads_to (name, session) as (
      select target collate "C", session_num
      union
      select next.name, next.session
      from leads_to cross join lateral (
        select run.awaits, run.session from harborage_runs as run
        where run.run_id = leads_to.name and run.awaits is not null
        union all
        select run.run_id, run.session
        from harborage_groups as one
        join harborage_runs as run on run.grp = one.group_id and run.grp is not null and run.session = one.session
        where one.group_id = leads_to.name and one.session = leads_to.session
          and one.status in ('open', 'sealed', 'ending') and run.status < 3
      ) as next (name, session)
    )
    select from leads_to where name = own_id
  );
end
$$;
