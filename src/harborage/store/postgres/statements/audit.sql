-- The statements of a check of everything that only Postgres needs.

-- name: suspect_run_columns
select run.run_id, run.status

-- name: run_name
select run_id from harborage_runs where num = :number::bigint;

-- name: entries
select
  entry.run, entry.position, entry.run, entry.position, entry.crc, entry.data,
  (select run.num from harborage_runs as run where run.num = entry.run) is null
from harborage_journal as entry
where (entry.run, entry.position) > (:after::bigint, :position::integer)
order by entry.run, entry.position limit :size;

-- name: entries_last
select max(run) from harborage_journal;

-- name: bodies
select body.num, body.digest, body.data, (
  select run.run_id from harborage_run_bodies as named
  join harborage_runs as run on run.num = named.run
  where named.body = body.num limit 1
)
from harborage_bodies as body where body.num > :after order by body.num limit :size;

-- name: controls
select
  control.num, control.run,
  coalesce((select run.run_id from harborage_runs as run where run.num = control.run), ''), control.event_id,
  control.sent_at, control.data, control.consumed is null,
  (select run.num from harborage_runs as run where run.num = control.run) is null
from harborage_controls as control
where control.num > :after order by control.num limit :size;

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

-- name: sessions
select
  session.num, session.tenant, session."user", session.session, session.opened_at, session.seen_at, session.closed_at,
  session.close_reason, session.events, session.context
from harborage_sessions as session where session.num > :after order by session.num limit :size;

-- name: events
select
  event.sequence, event.session, event.place, event.at, event.crc, event.data,
  (select session.num from harborage_sessions as session where session.num = event.session) is null,
  (select session.session from harborage_sessions as session where session.num = event.session)
from harborage_events as event
where event.sequence > :after order by event.sequence limit :size;
