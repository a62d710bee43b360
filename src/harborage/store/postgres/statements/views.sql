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

-- name: run_has_reasons_or_crashed
run.status = 4 and (run.reason = any(:reasons::text[]) or strpos(run.reason, ': ') > 0)

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

-- name: event_of_runs
(
  event.run = any(:run_ids::text[])
  or event.type like 'task.%' and exists (
    select 1 from unnest(:task_heads::text[]) as head
    where substring(event.data from 1 for octet_length(convert_to(head, 'UTF8'))) = convert_to(head, 'UTF8')
  )
)

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

-- name: run_has_shown
(case
  when run.status > 2 then run.status
  when run.blocked is not null and run.owner is null then 2
  when exists (select 1 from harborage_pauses as asked where asked.run = run.run_id and asked.status = 'open') then 2
  when run.status = 0 then 0
  else 1
end) = any(:shown::integer[])

-- name: run_has_owners
exists (
  select 1 from jsonb_array_elements(:owners::jsonb) as wanted(parts)
  join harborage_sessions as own on own.num = run.session
  where wanted.parts ->> 0 = run.tenant and wanted.parts ->> 1 in ('', run."user")
    and wanted.parts ->> 2 in ('', own.session)
)

-- name: run_has_words
(
  strpos(lower(run.run_id), :words) > 0 or strpos(lower(run.about), :words) > 0
  or strpos(lower(run.description), :words) > 0 or strpos(lower(run.kind), :words) > 0
  or (case
  when run.status > 2 then run.status
  when run.blocked is not null and run.owner is null then 2
  when exists (select 1 from harborage_pauses as asked where asked.run = run.run_id and asked.status = 'open') then 2
  when run.status = 0 then 0
  else 1
end) = any(:word_statuses::integer[])
)

-- name: event_has_text
(strpos(lower(event.type), :text) > 0 or strpos(lower(event.run), :text) > 0)

-- name: listed_has_tenants
session.tenant = any(:tenants::text[])

-- name: listed_has_users
session."user" = any(:users::text[])

-- name: listed_has_sessions
session.session = any(:sessions::text[])

-- name: listed_has_states
(case
  when session.closed_at is null then 'running' when session.close_reason = 'failed' then 'failed' else 'completed'
end) = any(:states::text[])

-- name: listed_has_agents
coalesce((
  select run.agent from harborage_runs as run where run.session = session.num and run.parent is null
  order by run.created_at desc, run.num desc limit 1
), '') = any(:agents::text[])

-- name: listed_has_text
(
  strpos(lower(session.session), :text) > 0 or strpos(lower(session."user"), :text) > 0
  or strpos(lower(coalesce((
  select run.agent from harborage_runs as run where run.session = session.num and run.parent is null
  order by run.created_at desc, run.num desc limit 1
), '')), :text) > 0
)

-- name: listed_has_words
(
  strpos(lower(session.session), :words) > 0 or strpos(lower(session.tenant), :words) > 0
  or strpos(lower(session."user"), :words) > 0 or strpos(lower(session.close_reason), :words) > 0
)

-- name: listed_started_desc
order by session.opened_at desc, session.session collate "C", session.num

-- name: listed_after_started_desc
(session.opened_at < :key or (session.opened_at = :key and (session.session collate "C", session.num) > (:name, :num)))

-- name: listed_started_asc
order by session.opened_at asc, session.session collate "C", session.num

-- name: listed_after_started_asc
(session.opened_at > :key or (session.opened_at = :key and (session.session collate "C", session.num) > (:name, :num)))

-- name: listed_last_activity_desc
order by coalesce(session.closed_at, session.seen_at) desc, session.session collate "C", session.num

-- name: listed_after_last_activity_desc
(coalesce(session.closed_at, session.seen_at) < :key or (coalesce(session.closed_at, session.seen_at) = :key and (session.session collate "C", session.num) > (:name, :num)))

-- name: listed_cost_desc
order by (
  select (cast(coalesce(sum(run.cost), 0) as bigint) + 5000) / 10000
  from harborage_runs as run where run.session = session.num
) desc, session.session collate "C", session.num

-- name: listed_after_cost_desc
((
  select (cast(coalesce(sum(run.cost), 0) as bigint) + 5000) / 10000
  from harborage_runs as run where run.session = session.num
) < :key or ((
  select (cast(coalesce(sum(run.cost), 0) as bigint) + 5000) / 10000
  from harborage_runs as run where run.session = session.num
) = :key and (session.session collate "C", session.num) > (:name, :num)))
