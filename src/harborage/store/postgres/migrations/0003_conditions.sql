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
