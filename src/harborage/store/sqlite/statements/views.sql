-- What can be asked of runs, pauses, events and sessions. A list is put together from its rows (`…_rows`), one of the ways
-- to begin at an index (`by_…`), the filter that is the same for all its ways, and a page (`newest`, `oldest`).

-- name: run_rows
SELECT
  run.num, run.run_id, run.tenant, run.user, session.session, run.agent, run.parent, run.root, run.grp, run.kind,
  run.priority, run.status, run.reason, run.blocked, run.description, run.about, run.created_at, run.updated_at,
  run.wake_at, run.deadline, run.awaits, run.position, run.owner, run.fence, run.attempts, run.woken, run.unread,
  run.children, run.tree, run.idem, run.fingerprint, run.cascades, run.notifies, run.retains_turn, run.acknowledged,
  run.tool_count, run.tokens, run.cost

-- name: run_whole
, run.asked, run.outcome

-- name: run_from
FROM harborage_runs AS run LEFT JOIN harborage_sessions AS session ON session.num = run.session
WHERE

-- name: run_keys
-- Where a row cannot be read: the rows of a list by number, to be read one by one.
SELECT run.created_at, run.num FROM harborage_runs AS run
WHERE

-- name: salvage
SELECT
  run.num, run.session, run.status, run.position, run.fence, CAST(run.run_id AS BLOB), CAST(run.tenant AS BLOB),
  CAST(run.user AS BLOB), CAST(session.session AS BLOB), CAST(run.agent AS BLOB), CAST(run.about AS BLOB)
FROM harborage_runs AS run LEFT JOIN harborage_sessions AS session ON session.num = run.session
WHERE run.num = :num;

-- name: run_counts
SELECT run.status, count(*)
FROM harborage_runs AS run
WHERE

-- name: run_count
SELECT count(*)
FROM harborage_runs AS run
WHERE

-- name: live_counts
SELECT run.status, count(*)
FROM harborage_runs AS run INDEXED BY harborage_runs_live
WHERE run.status < 3

-- name: bad_counts
SELECT run.status, count(*)
FROM harborage_runs AS run INDEXED BY harborage_runs_bad
WHERE run.status > 3

-- name: slice_end
SELECT run.created_at, run.num
FROM harborage_runs AS run
WHERE

-- name: run_has_agent
run.agent = :agent

-- name: run_has_parent
run.parent = :parent

-- name: run_has_root
run.root = :root

-- name: run_has_group
run.grp = :grp

-- name: run_has_tenant
run.tenant = :tenant

-- name: run_has_user
run.user = :user

-- name: run_has_session
EXISTS (SELECT 1 FROM harborage_sessions AS own WHERE own.num = run.session AND own.session = :session)

-- name: run_has_statuses
run.status IN (SELECT value FROM json_each(:statuses))

-- name: run_has_kinds
run.kind IN (SELECT value FROM json_each(:kinds))

-- name: run_has_reasons
run.status = 4 AND run.reason IN (SELECT value FROM json_each(:reasons))

-- name: run_has_since
run.created_at >= :since

-- name: run_has_until
run.created_at <= :until

-- name: run_has_longer_than
run.updated_at - run.created_at > :longer_than

-- name: run_has_text
(instr(lower(run.about), :text) OR instr(lower(run.description), :text))

-- name: by_num
run.num = :num

-- name: by_run_id
run.run_id IN (SELECT value FROM json_each(:run_ids))

-- name: by_session
run.session = (
  SELECT own.num FROM harborage_sessions AS own
  WHERE own.tenant = :tenant AND own.user = :user AND own.session = :session
)

-- name: by_user
run.tenant = :tenant AND run.user = :user

-- name: by_bad
run.tenant = :tenant AND run.user = :user AND run.status > 3 AND run.status = :status

-- name: by_bad_of_tenant
run.tenant = :tenant AND run.status > 3 AND run.status = :status

-- name: by_agent
run.tenant = :tenant AND run.agent = :agent

-- name: by_live
run.tenant = :tenant AND run.status < 3 AND run.status = :status

-- name: by_live_anywhere
-- The filter names the statuses once more; this lets the index of what is live be used, which holds few rows.
run.status < 3

-- name: by_tenant
run.tenant = :tenant

-- name: by_parent
run.parent = :parent AND run.parent IS NOT NULL

-- name: by_group_of_session
run.grp = :grp AND run.grp IS NOT NULL
AND run.session = (SELECT num FROM harborage_sessions WHERE tenant = :tenant AND user = :user AND session = :session)

-- name: by_group
run.grp = :grp AND run.grp IS NOT NULL

-- name: by_blocked
run.blocked IS NOT NULL

-- name: by_age
-- The page says where to begin.
TRUE

-- name: newest_run
AND (run.created_at, run.num) < (:at, :num) ORDER BY run.created_at DESC, run.num DESC LIMIT :limit

-- name: oldest_run
AND (run.created_at, run.num) > (:at, :num) ORDER BY run.created_at, run.num LIMIT :limit

-- name: newest_end
AND (run.created_at, run.num) < (:at, :num) ORDER BY run.created_at DESC, run.num DESC LIMIT 1 OFFSET :limit

-- name: oldest_end
AND (run.created_at, run.num) > (:at, :num) ORDER BY run.created_at, run.num LIMIT 1 OFFSET :limit

-- name: count_run
GROUP BY run.status

-- name: pause_rows
SELECT
  pause.num, pause.token, pause.run, pause.tenant, pause.user, session.session, pause.reason, pause.status,
  pause.opened_at, pause.deadline, pause.settled_at, pause.settled_by, pause.data, pause.answer, pause.answering
FROM harborage_pauses AS pause LEFT JOIN harborage_sessions AS session ON session.num = pause.session
WHERE

-- name: pause_keys
SELECT pause.opened_at, pause.num
FROM harborage_pauses AS pause
WHERE

-- name: pause_page
-- Only the pauses of a page are read whole.
pause.num IN (
SELECT pause.num
FROM harborage_pauses AS pause
WHERE

-- name: pause_paged
) ORDER BY pause.opened_at DESC, pause.num DESC

-- name: pause_count
SELECT count(*)
FROM harborage_pauses AS pause
WHERE

-- name: pause_by_num
pause.num = :num

-- name: salvaged_pause
SELECT
  pause.num, CAST(pause.token AS BLOB), CAST(pause.run AS BLOB), CAST(pause.tenant AS BLOB), CAST(pause.user AS BLOB),
  CAST(session.session AS BLOB), CAST(pause.reason AS BLOB), CAST(pause.status AS BLOB)
FROM harborage_pauses AS pause LEFT JOIN harborage_sessions AS session ON session.num = pause.session
WHERE pause.num = :num;

-- name: pause_has_tenant
pause.tenant = :tenant

-- name: pause_has_user
pause.user = :user

-- name: pause_has_session
EXISTS (SELECT 1 FROM harborage_sessions AS own WHERE own.num = pause.session AND own.session = :session)

-- name: pause_has_run_ids
pause.run IN (SELECT value FROM json_each(:run_ids))

-- name: pause_has_statuses
pause.status IN (SELECT value FROM json_each(:statuses))

-- name: pause_has_reasons
pause.reason IN (SELECT value FROM json_each(:reasons))

-- name: pause_has_since
pause.opened_at >= :since

-- name: pause_has_until
pause.opened_at <= :until

-- name: pause_has_due
pause.status = 'open' AND pause.deadline <= :due

-- name: pause_by_token
pause.token IN (SELECT value FROM json_each(:tokens))

-- name: pause_by_run
pause.run IN (SELECT value FROM json_each(:run_ids))

-- name: pause_by_user
pause.tenant = :tenant AND pause.user = :user

-- name: pause_by_open
pause.tenant = :tenant AND pause.status = 'open'

-- name: pause_open_anywhere
pause.tenant >= '' AND pause.status = 'open'

-- name: pause_by_due
pause.deadline <= :due AND pause.deadline IS NOT NULL AND pause.status = 'open'

-- name: pause_by_tenant
pause.tenant = :tenant

-- name: pause_by_age
pause.opened_at > -1

-- name: newest_pause
AND (pause.opened_at, pause.num) < (:at, :num) ORDER BY pause.opened_at DESC, pause.num DESC LIMIT :limit

-- name: event_rows
SELECT
  event.sequence, session.tenant, session.user, session.session, event.place, event.run, event.type, event.at,
  event.crc, event.data
FROM harborage_events AS event CROSS JOIN harborage_sessions AS session ON session.num = event.session
WHERE

-- name: event_rows_raw
SELECT
  event.sequence, session.tenant, session.user, session.session, event.place, CAST(event.run AS BLOB),
  CAST(event.type AS BLOB), event.at, event.crc, event.data
FROM harborage_events AS event CROSS JOIN harborage_sessions AS session ON session.num = event.session
WHERE

-- name: event_filter
AND (:tenant = '' OR session.tenant = :tenant) AND (:user = '' OR session.user = :user)
AND (:run_ids IS NULL OR event.run IN (SELECT value FROM json_each(:run_ids)))
AND (:types IS NULL OR event.type IN (SELECT value FROM json_each(:types)))
AND (:since IS NULL OR event.at >= :since) AND (:until IS NULL OR event.at <= :until)

-- name: event_by_session
event.session = :session

-- name: event_by_sequence
-- The page says where to begin.
TRUE

-- name: oldest_event
AND event.sequence > :after ORDER BY event.sequence LIMIT :limit

-- name: newest_event
AND event.sequence < :after ORDER BY event.sequence DESC LIMIT :limit

-- name: session_rows
SELECT
  session.num, session.tenant, session.user, session.session, session.opened_at, session.seen_at, session.closed_at,
  session.close_reason, session.events, session.context
FROM harborage_sessions AS session
WHERE

-- name: session_keys
SELECT session.opened_at, session.num FROM harborage_sessions AS session
WHERE

-- name: session_by_num
session.num = :num

-- name: salvaged_session
SELECT session.num, CAST(session.tenant AS BLOB), CAST(session.user AS BLOB), CAST(session.session AS BLOB),
  session.closed_at, session.events, session.context IS NOT NULL
FROM harborage_sessions AS session
WHERE session.num = :num;

-- name: session_filter
AND (:user = '' OR session.user = :user) AND (:session = '' OR session.session = :session)
AND (:include_closed OR session.closed_at IS NULL) AND (NOT :only_opened OR session.context IS NOT NULL)
AND (:since IS NULL OR session.seen_at >= :since) AND (:until IS NULL OR session.seen_at <= :until)
AND (
  (:seen_before IS NULL AND :opened_before IS NULL)
  OR session.seen_at < :seen_before OR session.opened_at < :opened_before
)

-- name: session_by_name
session.tenant = :tenant AND session.user = :user AND session.session = :session

-- name: session_by_user
session.tenant = :tenant AND session.user = :user

-- name: session_by_open
session.closed_at IS NULL AND session.context IS NOT NULL AND session.opened_at > -9223372036854775807

-- name: session_by_tenant
session.tenant = :tenant

-- name: session_by_age
session.opened_at > -9223372036854775807

-- name: newest_session
AND (session.opened_at, session.num) < (:at, :num)
ORDER BY session.opened_at DESC, session.num DESC LIMIT :limit

-- name: group_rows
SELECT
  one.num, one.group_id, session.tenant, session.user, session.session, one.owner, one.retains_turn, one.fails_fast,
  one.description, one.status, one.reason, one.members, one.open_members, one.created_at, one.sealed_at, one.ended_at,
  one.deadline
FROM harborage_groups AS one CROSS JOIN harborage_sessions AS session ON session.num = one.session
WHERE

-- name: group_by_id
one.group_id IN (SELECT value FROM json_each(:group_ids))

-- name: group_by_session
one.session = (SELECT num FROM harborage_sessions WHERE tenant = :tenant AND user = :user AND session = :session)

-- name: group_by_user
one.session IN (SELECT num FROM harborage_sessions WHERE tenant = :tenant AND user = :user)

-- name: group_by_live
one.status IN ('open', 'sealed', 'ending') AND one.created_at > -1

-- name: group_by_tenant
one.session IN (SELECT num FROM harborage_sessions WHERE tenant = :tenant)

-- name: group_by_age
one.created_at > -1

-- name: group_has_tenant
session.tenant = :tenant

-- name: group_has_user
session.user = :user

-- name: group_has_session
session.session = :session

-- name: group_has_group_ids
one.group_id IN (SELECT value FROM json_each(:group_ids))

-- name: group_has_statuses
one.status IN (SELECT value FROM json_each(:statuses))

-- name: group_has_only_empty
one.members > 0 AND one.open_members = 0

-- name: newest_group
AND (one.created_at, one.num) < (:at, :num) ORDER BY one.created_at DESC, one.num DESC LIMIT :limit

-- name: journal
SELECT entry.position, entry.crc, entry.data
FROM harborage_runs AS run CROSS JOIN harborage_journal AS entry ON entry.run = run.num
WHERE run.run_id = :run_id AND entry.position > :after ORDER BY entry.position;

-- name: position
SELECT position FROM harborage_runs WHERE run_id = :run_id;

-- name: body
SELECT body.data
FROM harborage_bodies AS body CROSS JOIN harborage_run_bodies AS named ON named.body = body.num
CROSS JOIN harborage_runs AS run ON run.num = named.run
WHERE body.digest = :digest AND run.run_id = :run_id;
