-- What lists and counts ask for that reads otherwise than in other dialects; the pieces that they share stand in
-- `harborage.store.sql`.

-- name: live_page
run.num in (
select run.num from harborage_runs as run
where

-- name: live_paged
)

-- name: run_counts
-- By status, and whether they are beyond the cap.
select counted.status, counted.nth > :cap as is_over, count(*)
from (
  select run.status, row_number() over () as nth from harborage_runs as run where

-- name: run_counted
  limit :cap + 1
) as counted
group by counted.status, is_over

-- name: by_number
run.num = any(:nums::bigint[])

-- name: by_run_id
run.run_id = any(:run_ids::text[])

-- name: by_parents
run.parent = any(:parents::text[]) and run.parent is not null

-- name: run_has_parents
run.parent = any(:parents::text[])

-- name: run_has_statuses
run.status = any(:statuses::smallint[])

-- name: run_has_kinds
run.kind = any(:kinds::text[])

-- name: run_has_reasons
run.status = 4 and run.reason = any(:reasons::text[])

-- name: run_has_text
(strpos(lower(run.about), :text) > 0 or strpos(lower(run.description), :text) > 0)

-- name: run_has_tags
not exists (
  select 1 from unnest(:tags::text[]) as wanted(mark) where strpos(coalesce(run.tags, ''), wanted.mark) = 0
)

-- name: pause_by_token
pause.token = any(:tokens::text[])

-- name: pause_by_run
pause.run = any(:run_ids::text[])

-- name: pause_has_run_ids
pause.run = any(:run_ids::text[])

-- name: pause_has_statuses
pause.status = any(:statuses::text[])

-- name: pause_has_reasons
pause.reason = any(:reasons::text[])

-- name: event_rows
select
  event.sequence, session.tenant, session."user", session.session, event.place, event.run, event.type, event.at,
  event.crc, event.data
from harborage_events as event join harborage_sessions as session on session.num = event.session
where

-- name: event_counts
select (event.at * 1000 - :start::bigint) / :bucket::bigint, event.type, count(*)
from harborage_events as event
where

-- name: event_by_sessions
event.session = any(array(
  select num from harborage_sessions
  where tenant = any(:tenants::text[]) and "user" = any(:users::text[]) and session = any(:sessions::text[])
))

-- name: event_has_run_ids
event.run = any(:run_ids::text[])

-- name: event_has_types
event.type = any(:types::text[])

-- name: group_rows
select
  one.num, one.group_id, session.tenant, session."user", session.session, one.owner, one.retains_turn, one.fails_fast,
  one.description, one.status, one.reason, one.members, one.open_members, one.created_at, one.sealed_at, one.ended_at,
  one.deadline, one.outcome
from harborage_groups as one join harborage_sessions as session on session.num = one.session
where

-- name: group_by_id
one.group_id = any(:group_ids::text[])

-- name: group_by_user
one.session = any(array(select num from harborage_sessions where tenant = :tenant and "user" = :user))

-- name: group_by_tenant
one.session = any(array(select num from harborage_sessions where tenant = :tenant))

-- name: group_has_group_ids
one.group_id = any(:group_ids::text[])

-- name: group_has_statuses
one.status = any(:statuses::text[])
