-- The pieces of lists that read the same in every dialect; a driver has those of its own beside them. A list is put
-- together from its rows (`…_rows`), the indexes at which it begins (`by_…`), the conditions that are asked for
-- (`…_has_…`), and a page (`newest`, `oldest`).

-- name: run_rows
select
  run.num, run.run_id, run.tenant, run."user", session.session, run.agent, run.parent, run.root, run.grp, run.kind,
  run.priority, run.status, run.reason, run.blocked, run.description, run.about, run.created_at, run.updated_at,
  run.wake_at, run.deadline, run.awaits, run.position, run.owner, run.fence, run.attempts, run.woken, run.unread,
  run.seen_control, run.children, run.tree, run.idem, run.fingerprint, run.cascades, run.notifies, run.retains_turn,
  run.acknowledged, run.tool_count, run.tokens, run.cost, run.tags

-- name: run_whole
, run.asked, run.outcome

-- name: run_from
from harborage_runs as run left join harborage_sessions as session on session.num = run.session
where

-- name: slice_end
select run.created_at, run.num
from harborage_runs as run
where

-- name: newest_end
and (run.created_at, run.num) < (:at, :num)
order by run.created_at desc, run.num desc limit 1 offset :limit

-- name: oldest_end
and (run.created_at, run.num) > (:at, :num) order by run.created_at, run.num limit 1 offset :limit

-- name: by_session
run.session = (
  select num from harborage_sessions where tenant = :tenant and "user" = :user and session = :session
)

-- name: by_user
run.tenant = :tenant and run."user" = :user

-- name: by_bad
run.tenant = :tenant and run."user" = :user and run.status > 3 and run.status = :status

-- name: by_bad_of_tenant
run.tenant = :tenant and run.status > 3 and run.status = :status

-- name: by_agent
run.tenant = :tenant and run.agent = :agent

-- name: by_live
run.tenant = :tenant and run.status < 3 and run.status = :status

-- name: by_live_anywhere
run.status < 3

-- name: by_tenant
run.tenant = :tenant

-- name: by_parent
run.parent = :parent and run.parent is not null

-- name: by_group_of_session
run.grp = :group and run.grp is not null and run.session = (
  select num from harborage_sessions where tenant = :tenant and "user" = :user and session = :session
)

-- name: by_group
run.grp = :group and run.grp is not null

-- name: by_blocked
run.blocked is not null

-- name: by_age
-- The page says where to begin.
true

-- name: run_has_agent
run.agent = :agent

-- name: run_has_parent
run.parent = :parent

-- name: run_has_root
run.root = :root

-- name: run_has_group
run.grp = :group

-- name: run_has_tenant
run.tenant = :tenant

-- name: run_has_user
run."user" = :user

-- name: run_has_session
exists (select 1 from harborage_sessions as own where own.num = run.session and own.session = :session)

-- name: run_has_since
run.created_at >= :since

-- name: run_has_until
run.created_at <= :until

-- name: run_has_longer_than
run.updated_at - run.created_at > :longer_than

-- name: newest_run
and (run.created_at, run.num) < (:at, :num) order by run.created_at desc, run.num desc limit :limit

-- name: oldest_run
and (run.created_at, run.num) > (:at, :num) order by run.created_at, run.num limit :limit

-- name: pause_rows
select
  pause.num, pause.token, pause.run, pause.tenant, pause."user", session.session, pause.reason, pause.status,
  pause.opened_at, pause.deadline, pause.settled_at, pause.settled_by, pause.data, pause.answer, pause.answering
from harborage_pauses as pause left join harborage_sessions as session on session.num = pause.session
where

-- name: pause_count
select count(*)
from harborage_pauses as pause
where

-- name: pause_by_user
pause.tenant = :tenant and pause."user" = :user

-- name: pause_by_open
pause.tenant = :tenant and pause.status = 'open'

-- name: pause_open_anywhere
pause.tenant >= '' and pause.status = 'open'

-- name: pause_by_due
pause.deadline <= :due and pause.deadline is not null and pause.status = 'open'

-- name: pause_by_tenant
pause.tenant = :tenant

-- name: pause_by_age
pause.opened_at > -1

-- name: pause_has_tenant
pause.tenant = :tenant

-- name: pause_has_user
pause."user" = :user

-- name: pause_has_session
exists (select 1 from harborage_sessions as own where own.num = pause.session and own.session = :session)

-- name: pause_has_since
pause.opened_at >= :since

-- name: pause_has_until
pause.opened_at <= :until

-- name: pause_has_due
pause.deadline <= :due and pause.deadline is not null and pause.status = 'open'

-- name: newest_pause
and (pause.opened_at, pause.num) < (:at, :num)
order by pause.opened_at desc, pause.num desc limit :limit

-- name: event_by_session
event.session = (
  select num from harborage_sessions where tenant = :tenant and "user" = :user and session = :session
)

-- name: event_by_sequence
-- The page says where to begin.
true

-- name: event_has_tenant
session.tenant = :tenant

-- name: event_has_user
session."user" = :user

-- name: event_has_session
session.session = :session

-- name: event_has_since
event.at >= :since

-- name: event_has_until
event.at <= :until

-- name: event_between
event.at >= :since and event.at < :until

-- name: event_counted
group by 1, 2 order by 1, 2

-- name: oldest_event
and event.sequence > :after order by event.sequence limit :limit

-- name: newest_event
and event.sequence < :after order by event.sequence desc limit :limit

-- name: session_rows
select
  session.num, session.tenant, session."user", session.session, session.opened_at, session.seen_at, session.closed_at,
  session.close_reason, session.events, session.context
from harborage_sessions as session
where

-- name: session_by_name
session.tenant = :tenant and session."user" = :user and session.session = :session

-- name: session_by_user
session.tenant = :tenant and session."user" = :user

-- name: session_by_open
session.closed_at is null and session.context is not null and session.opened_at > -9223372036854775807

-- name: session_by_tenant
session.tenant = :tenant

-- name: session_by_age
session.opened_at > -9223372036854775807

-- name: session_has_user
session."user" = :user

-- name: session_has_session
session.session = :session

-- name: session_has_since
session.seen_at >= :since

-- name: session_has_until
session.seen_at <= :until

-- name: session_is_open
session.closed_at is null

-- name: session_is_opened
session.context is not null

-- name: session_is_left
(session.seen_at < :seen_before or session.opened_at < :opened_before)

-- name: newest_session
and (session.opened_at, session.num) < (:at, :num)
order by session.opened_at desc, session.num desc limit :limit

-- name: group_by_session
one.session = (
  select num from harborage_sessions where tenant = :tenant and "user" = :user and session = :session
)

-- name: group_by_live
one.status in ('open', 'sealed', 'ending') and one.created_at > -1

-- name: group_by_age
one.created_at > -1

-- name: group_has_tenant
session.tenant = :tenant

-- name: group_has_user
session."user" = :user

-- name: group_has_session
session.session = :session

-- name: group_has_only_empty
one.members > 0 and one.open_members = 0

-- name: newest_group
and (one.created_at, one.num) < (:at, :num) order by one.created_at desc, one.num desc limit :limit

-- name: run_totals
select count(*), cast(coalesce(sum(run.tokens), 0) as bigint), cast(coalesce(sum(run.cost), 0) as bigint)
from harborage_runs as run
where

-- name: run_has_approval
exists (
  select 1 from harborage_pauses as asked
  where asked.run = run.run_id and asked.status = 'open' and asked.reason = 'approval_required'
)

-- name: run_has_no_approval
not exists (
  select 1 from harborage_pauses as asked
  where asked.run = run.run_id and asked.status = 'open' and asked.reason = 'approval_required'
)

-- name: event_count
select count(*)
from harborage_events as event join harborage_sessions as session on session.num = event.session
where

-- name: listed_page
-- The numbers of the sessions of a page, and then what their runs come to.
with page as (

-- name: listed_keys
select session.num
from harborage_sessions as session
where

-- name: listed_count
select count(*)
from harborage_sessions as session
where

-- name: listed_limit
limit :limit

-- name: listed_totals
), total as (
  select
    run.session as num, count(*) as runs, cast(sum(run.tokens) as bigint) as tokens,
    cast(sum(run.cost) as bigint) as cost, max(case when run.status = 4 then 1 else 0 end) as failed
  from harborage_runs as run
  where run.session in (select page.num from page)
  group by run.session
)
select
  session.num, session.tenant, session."user", session.session, session.opened_at, session.seen_at, session.closed_at,
  session.close_reason, session.events, session.context,
  coalesce((
    select run.agent from harborage_runs as run where run.session = session.num and run.parent is null
    order by run.created_at desc, run.num desc limit 1
  ), ''),
  coalesce(total.runs, 0), coalesce(total.tokens, 0), coalesce(total.cost, 0),
  exists (select 1 from harborage_pauses as asked where asked.session = session.num and asked.status = 'open'),
  coalesce(total.failed, 0)
from page
join harborage_sessions as session on session.num = page.num
left join total on total.num = session.num

-- name: listed_by_user
session.tenant = :tenant and session."user" = :user

-- name: listed_has_since
session.opened_at >= :since

-- name: listed_has_until
session.opened_at <= :until

-- name: listed_has_pause
exists (select 1 from harborage_pauses as asked where asked.session = session.num and asked.status = 'open')

-- name: listed_has_no_pause
not exists (select 1 from harborage_pauses as asked where asked.session = session.num and asked.status = 'open')

-- name: listed_has_failed
exists (
  select 1 from harborage_runs as run where run.session = session.num and run.status > 3 and run.status = 4
)

-- name: listed_has_no_failed
not exists (
  select 1 from harborage_runs as run where run.session = session.num and run.status > 3 and run.status = 4
)

-- name: listed_has_cost
(
  select (cast(coalesce(sum(run.cost), 0) as bigint) + 5000) / 10000
  from harborage_runs as run where run.session = session.num
) > :cost_above
