-- What lists and counts ask for that reads otherwise than in other dialects; the pieces that they share stand in
-- `harborage.store.sql`.

-- name: live_page
run.num IN (
SELECT run.num FROM harborage_runs AS run INDEXED BY harborage_runs_live
WHERE

-- name: live_paged
)

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

-- name: run_has_statuses
run.status IN (SELECT value FROM json_each(:statuses))

-- name: run_has_kinds
run.kind IN (SELECT value FROM json_each(:kinds))

-- name: run_has_reasons
run.status = 4 AND run.reason IN (SELECT value FROM json_each(:reasons))

-- name: run_has_reasons_or_crashed
run.status = 4 AND (run.reason IN (SELECT value FROM json_each(:reasons)) OR instr(run.reason, ': '))

-- name: run_has_text
(instr(lower(run.about), :text) OR instr(lower(run.description), :text))

-- name: run_has_tags
NOT EXISTS (SELECT 1 FROM json_each(:tags) AS wanted WHERE instr(coalesce(run.tags, ''), wanted.value) = 0)

-- name: by_num
run.num = :num

-- name: by_run_id
run.run_id IN (SELECT value FROM json_each(:run_ids))

-- name: by_parents
run.parent IN (SELECT value FROM json_each(:parents)) AND run.parent IS NOT NULL

-- name: run_has_parents
run.parent IN (SELECT value FROM json_each(:parents))

-- name: count_run
GROUP BY run.status

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

-- name: pause_by_num
pause.num = :num

-- name: salvaged_pause
SELECT
  pause.num, CAST(pause.token AS BLOB), CAST(pause.run AS BLOB), CAST(pause.tenant AS BLOB), CAST(pause.user AS BLOB),
  CAST(session.session AS BLOB), CAST(pause.reason AS BLOB), CAST(pause.status AS BLOB)
FROM harborage_pauses AS pause LEFT JOIN harborage_sessions AS session ON session.num = pause.session
WHERE pause.num = :num;

-- name: pause_has_run_ids
pause.run IN (SELECT value FROM json_each(:run_ids))

-- name: pause_has_statuses
pause.status IN (SELECT value FROM json_each(:statuses))

-- name: pause_has_reasons
pause.reason IN (SELECT value FROM json_each(:reasons))

-- name: pause_by_token
pause.token IN (SELECT value FROM json_each(:tokens))

-- name: pause_by_run
pause.run IN (SELECT value FROM json_each(:run_ids))

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

-- name: event_counts
SELECT (event.at * 1000 - :start) / :bucket, CAST(event.type AS BLOB), count(*)
FROM harborage_events AS event
WHERE

-- name: event_by_sessions
event.session IN (
  SELECT num FROM harborage_sessions
  WHERE tenant IN (SELECT value FROM json_each(:tenants)) AND user IN (SELECT value FROM json_each(:users))
    AND session IN (SELECT value FROM json_each(:sessions))
)

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

-- name: group_rows
SELECT
  one.num, one.group_id, session.tenant, session.user, session.session, one.owner, one.retains_turn, one.fails_fast,
  one.description, one.status, one.reason, one.members, one.open_members, one.created_at, one.sealed_at, one.ended_at,
  one.deadline, one.outcome
FROM harborage_groups AS one CROSS JOIN harborage_sessions AS session ON session.num = one.session
WHERE

-- name: group_by_id
one.group_id IN (SELECT value FROM json_each(:group_ids))

-- name: group_by_user
one.session IN (SELECT num FROM harborage_sessions WHERE tenant = :tenant AND user = :user)

-- name: group_by_tenant
one.session IN (SELECT num FROM harborage_sessions WHERE tenant = :tenant)

-- name: group_has_group_ids
one.group_id IN (SELECT value FROM json_each(:group_ids))

-- name: group_has_statuses
one.status IN (SELECT value FROM json_each(:statuses))

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

-- name: event_has_run_ids
event.run IN (SELECT value FROM json_each(:run_ids))

-- name: event_of_runs
(
  event.run IN (SELECT value FROM json_each(:run_ids))
  OR event.type GLOB 'task.*' AND EXISTS (
    SELECT 1 FROM json_each(:task_heads) AS head
    WHERE substr(event.data, 1, length(CAST(head.value AS BLOB))) = CAST(head.value AS BLOB)
  )
)

-- name: event_has_types
event.type IN (SELECT value FROM json_each(:types))

-- name: run_has_shown
(case
  when run.status > 2 then run.status
  when run.blocked is not null and run.owner is null then 2
  when exists (select 1 from harborage_pauses as asked where asked.run = run.run_id and asked.status = 'open') then 2
  when run.status = 0 then 0
  else 1
end) IN (SELECT value FROM json_each(:shown))

-- name: run_has_owners
EXISTS (
  SELECT 1 FROM json_each(:owners) AS wanted JOIN harborage_sessions AS own ON own.num = run.session
  WHERE json_extract(wanted.value, '$[0]') = run.tenant AND json_extract(wanted.value, '$[1]') IN ('', run.user)
    AND json_extract(wanted.value, '$[2]') IN ('', own.session)
)

-- name: run_has_words
(
  instr(lower(run.run_id), :words) OR instr(lower(run.about), :words) OR instr(lower(run.description), :words)
  OR instr(lower(run.kind), :words) OR (case
  when run.status > 2 then run.status
  when run.blocked is not null and run.owner is null then 2
  when exists (select 1 from harborage_pauses as asked where asked.run = run.run_id and asked.status = 'open') then 2
  when run.status = 0 then 0
  else 1
end) IN (SELECT value FROM json_each(:word_statuses))
)

-- name: event_has_text
(instr(lower(event.type), :text) OR instr(lower(event.run), :text))

-- name: listed_has_tenants
session.tenant IN (SELECT value FROM json_each(:tenants))

-- name: listed_has_users
session.user IN (SELECT value FROM json_each(:users))

-- name: listed_has_sessions
session.session IN (SELECT value FROM json_each(:sessions))

-- name: listed_has_states
(case
  when session.closed_at is null then 'running' when session.close_reason = 'failed' then 'failed' else 'completed'
end) IN (SELECT value FROM json_each(:states))

-- name: listed_has_agents
coalesce((
  select run.agent from harborage_runs as run where run.session = session.num and run.parent is null
  order by run.created_at desc, run.num desc limit 1
), '') IN (SELECT value FROM json_each(:agents))

-- name: listed_has_text
(
  instr(lower(session.session), :text) OR instr(lower(session.user), :text)
  OR instr(lower(coalesce((
  select run.agent from harborage_runs as run where run.session = session.num and run.parent is null
  order by run.created_at desc, run.num desc limit 1
), '')), :text)
)

-- name: listed_has_words
(
  instr(lower(session.session), :words) OR instr(lower(session.tenant), :words) OR instr(lower(session.user), :words)
  OR instr(lower(session.close_reason), :words)
)

-- name: listed_started_desc
order by session.opened_at desc, session.session, session.num

-- name: listed_after_started_desc
(session.opened_at < :key or (session.opened_at = :key and (session.session, session.num) > (:name, :num)))

-- name: listed_started_asc
order by session.opened_at asc, session.session, session.num

-- name: listed_after_started_asc
(session.opened_at > :key or (session.opened_at = :key and (session.session, session.num) > (:name, :num)))

-- name: listed_last_activity_desc
order by coalesce(session.closed_at, session.seen_at) desc, session.session, session.num

-- name: listed_after_last_activity_desc
(coalesce(session.closed_at, session.seen_at) < :key or (coalesce(session.closed_at, session.seen_at) = :key and (session.session, session.num) > (:name, :num)))

-- name: listed_cost_desc
order by (
  select (cast(coalesce(sum(run.cost), 0) as bigint) + 5000) / 10000
  from harborage_runs as run where run.session = session.num
) desc, session.session, session.num

-- name: listed_after_cost_desc
((
  select (cast(coalesce(sum(run.cost), 0) as bigint) + 5000) / 10000
  from harborage_runs as run where run.session = session.num
) < :key or ((
  select (cast(coalesce(sum(run.cost), 0) as bigint) + 5000) / 10000
  from harborage_runs as run where run.session = session.num
) = :key and (session.session, session.num) > (:name, :num)))
