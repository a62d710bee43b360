-- What the caller of a run marked it with, as `harborage.store.tags` writes it; null for nothing.
alter table harborage_runs add column tags text;

create or replace function harborage_runs_started(one jsonb, nums bigint[], blobs bytea[], at_time bigint)
returns void language plpgsql as $$
declare
  part jsonb;
  run_num bigint;
begin
  for part in select value from jsonb_array_elements(one -> 'starts') loop
    insert into harborage_runs (
      run_id, session, tenant, "user", agent, parent, root, grp, kind, priority, status, description, about,
      created_at, updated_at, deadline, position, owner, fence, woken, idem, fingerprint, cascades, notifies,
      retains_turn, asked, tags
    )
    values (
      part ->> 'run', nums[(part ->> 'who')::integer], part ->> 'tenant', part ->> 'user', part ->> 'agent',
      part ->> 'parent', part ->> 'root', part ->> 'group', part ->> 'kind', (part ->> 'priority')::integer,
      (part ->> 'status')::smallint, part ->> 'description', part ->> 'about', at_time, at_time,
      (part ->> 'deadline')::bigint, (part ->> 'entries')::integer, part ->> 'worker',
      case when part ? 'worker' then 1 else 0 end,
      not part ? 'worker' and (part ->> 'entries')::integer > 0, part ->> 'key', part ->> 'fingerprint',
      part ? 'cascades', part ? 'notifies', part ? 'retains_turn', blobs[(part ->> 'asked')::integer],
      part ->> 'tags'
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
