-- What only a check of everything asks, slice by slice. `…_until` is where a slice ends, `…_last` where its table does.
-- What a row speaks of is looked up for each row, as a value: a join, or `not exists`, may read all of the other table.

-- name: runs_until
select max(num) from (select num from harborage_runs where num > :after order by num limit :size);

-- name: runs_last
select max(num) from harborage_runs;

-- name: suspect_runs
-- Runs that may not agree with what is kept of them elsewhere, or that may wait for nothing.
select run.run_id, run.status from harborage_runs as run
where run.num > :after and run.num <= :until and (
  run.status not between 0 and 5
  or least(run.created_at, run.updated_at, run.wake_at, run.deadline) < 0
  or greatest(run.created_at, run.updated_at, run.wake_at, run.deadline) > :latest
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
    run.owner is not null or run.wake_at is not null or run.awaits is not null or run.woken
    or (select 1 from harborage_pauses as pause where pause.run = run.run_id and pause.status = 'open' limit 1) = 1
  ))
  or (run.status < 3 and run.owner is not null and run.fence = 0)
  or (run.status < 3 and run.position = 0 and (run.owner is not null or run.woken))
  or (run.status < 3 and run.position > 0 and run.owner is null and not run.woken and run.blocked is null and (
    run.unread > 0
    or (run.wake_at is null and (
      select 1 from harborage_pauses as pause where pause.run = run.run_id and pause.status = 'open' limit 1
    ) is null)
  ))
)
order by run.num;

-- name: entries
select
  entry.run, entry.position, entry.crc, entry.data,
  (select run.num from harborage_runs as run where run.num = entry.run) is null
from harborage_journal as entry
where (entry.run, entry.position) > (:after::bigint, :position::integer)
order by entry.run, entry.position limit :size;

-- name: entries_last
select max(run) from harborage_journal;

-- name: run_name
select run_id from harborage_runs where num = :number::bigint;

-- name: first_entry
select data from harborage_journal where run = :number and position = 1;

-- name: is_named
select 1 from harborage_bodies as body join harborage_run_bodies as named on named.body = body.num
where body.digest = :digest and named.run = :number;

-- name: bodies
select body.num, body.digest, body.data, (
  select run.run_id from harborage_run_bodies as named
  join harborage_runs as run on run.num = named.run
  where named.body = body.num limit 1
)
from harborage_bodies as body where body.num > :after order by body.num limit :size;

-- name: bodies_last
select max(num) from harborage_bodies;

-- name: controls
select
  control.num, control.run,
  coalesce((select run.run_id from harborage_runs as run where run.num = control.run), ''), control.event_id,
  control.sent_at, control.data, control.consumed is null,
  (select run.num from harborage_runs as run where run.num = control.run) is null
from harborage_controls as control
where control.num > :after order by control.num limit :size;

-- name: controls_last
select max(num) from harborage_controls;

-- name: pauses
select
  pause.num, pause.token, pause.run, pause.tenant, pause."user",
  (select session.session from harborage_sessions as session where session.num = pause.session), pause.reason,
  pause.status, pause.opened_at, pause.deadline, pause.settled_at, pause.settled_by, pause.data, pause.answer,
  pause.answering, pause.status = 'open' and pause.run <> '' and (
    select 1 from harborage_runs as run where run.run_id = pause.run
  ) is null
from harborage_pauses as pause
where pause.num > :after order by pause.num limit :size;

-- name: pauses_last
select max(num) from harborage_pauses;

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
select max(num) from harborage_groups;

-- name: sessions
select
  session.num, session.tenant, session."user", session.session, session.opened_at, session.seen_at, session.closed_at,
  session.close_reason, session.events, session.context
from harborage_sessions as session where session.num > :after order by session.num limit :size;

-- name: sessions_last
select max(num) from harborage_sessions;

-- name: suspect_sessions
-- Sessions whose events may not be those that they count: their places are not one to that number.
select session.num from harborage_sessions as session cross join lateral (
  select count(*) as events, coalesce(max(event.place), 0) as last, coalesce(sum(event.place), 0) as total
  from harborage_events as event where event.session = session.num
) as kept
where session.num > :after and session.num <= :until and (
  session.events <> kept.events or session.events <> kept.last
  or session.events * (session.events + 1) / 2 <> kept.total
)
order by session.num;

-- name: events
select
  event.sequence, event.session, event.place, event.at, event.crc, event.data,
  (select session.session from harborage_sessions as session where session.num = event.session)
from harborage_events as event
where event.sequence > :after order by event.sequence limit :size;

-- name: events_last
select max(sequence) from harborage_events;
