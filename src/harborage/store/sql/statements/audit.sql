-- The statements of a check of everything that read the same in every dialect; a driver has those of its own beside
-- them. `…_last` is the number of the last row of a table, `…_until` where a slice ends. What a row names is looked up
-- for each row, as a value: a join, or `not exists`, may read all of the other table.

-- name: runs_until
select max(num) from (select num from harborage_runs where num > :after order by num limit :size) as slice;

-- name: runs_last
select num from harborage_runs where num > 0 order by num desc limit 1;

-- name: suspect_runs
-- The runs that may not agree with their journal, controls, pauses, children, group or session, or that nothing will
-- move; a driver selects the columns.
from harborage_runs as run
where run.num > :after and run.num <= :until and (
  run.status not between 0 and 5
  or run.created_at not between 0 and :latest
  or run.updated_at not between 0 and :latest
  or coalesce(run.wake_at, 0) not between 0 and :latest
  or coalesce(run.deadline, 0) not between 0 and :latest
  or (select 1 from harborage_sessions as own where own.num = run.session) is null
  or run.position <> (select count(*) from harborage_journal as entry where entry.run = run.num)
  or run.position <> (select coalesce(max(entry.position), 0) from harborage_journal as entry where entry.run = run.num)
  or run.unread <> (
    select count(*) from harborage_controls as control where control.run = run.num and control.consumed is null
  )
  or (run.root is null and run.tree < run.children)
  or run.children < (select count(*) from harborage_runs as child where child.parent = run.run_id)
  or (run.grp is not null and (
    select 1 from harborage_groups as one where one.session = run.session and one.group_id = run.grp
  ) is null)
  or (run.status >= 3 and (
    run.owner is not null or run.wake_at is not null or run.awaits is not null or run.woken or run.unread > 0
    or (select 1 from harborage_pauses as pause where pause.run = run.run_id and pause.status = 'open' limit 1) = 1
  ))
  or (run.status < 3 and run.owner is not null and run.fence = 0)
  or (run.status < 3 and run.position = 0 and (run.owner is not null or run.woken))
  or (run.status < 3 and run.position > 0 and run.owner is null and not run.woken and run.blocked is null and (
    run.seen_control < coalesce((
      select max(control.num) from harborage_controls as control where control.run = run.num and control.consumed is null
    ), 0)
    or (run.wake_at is null and (
      select 1 from harborage_pauses as pause where pause.run = run.run_id and pause.status = 'open' limit 1
    ) is null)
  ))
)
order by run.num;

-- name: first_entry
select data from harborage_journal where run = :number and position = 1;

-- name: is_named
-- Whether a run's entries name a body that is kept.
select 1 from harborage_run_bodies as named
where named.run = :number
  and named.body = (select body.num from harborage_bodies as body where body.digest = :digest);

-- name: bodies_last
select num from harborage_bodies where num > 0 order by num desc limit 1;

-- name: controls_last
select num from harborage_controls where num > 0 order by num desc limit 1;

-- name: pauses_last
select num from harborage_pauses where num > 0 order by num desc limit 1;

-- name: groups
-- Whether each may not agree with its members.
select one.num, session.tenant, session."user", session.session, one.group_id,
  one.open_members <> (
    select count(*) from harborage_runs as member
    where member.grp = one.group_id and member.grp is not null and member.session = one.session and member.status < 3
  )
  or one.members < (
    select count(*) from harborage_runs as member
    where member.grp = one.group_id and member.grp is not null and member.session = one.session
  )
from harborage_groups as one join harborage_sessions as session on session.num = one.session
where one.num > :after order by one.num limit :size;

-- name: groups_last
select num from harborage_groups where num > 0 order by num desc limit 1;

-- name: sessions_last
select num from harborage_sessions where num > 0 order by num desc limit 1;

-- name: suspect_sessions
-- The sessions whose events may not be those that they count: their places are not 1 up to that number.
select session.num from harborage_sessions as session
where session.num > :after and session.num <= :until and (
  select count(*) <> session.events
    or coalesce(max(event.place), 0) <> session.events
    or coalesce(sum(event.place), 0) <> session.events * (session.events + 1) / 2
  from harborage_events as event where event.session = session.num
)
order by session.num;

-- name: events_last
select sequence from harborage_events where sequence > 0 order by sequence desc limit 1;
