-- What only a check of everything asks, slice by slice. `…_until` is where a slice ends, `…_last` where its table does.

-- name: runs_until
SELECT max(num) FROM (SELECT num FROM harborage_runs WHERE num > :after ORDER BY num LIMIT :size);

-- name: runs_last
SELECT num FROM harborage_runs WHERE num > 0 ORDER BY num DESC LIMIT 1;

-- name: suspect_runs
-- Runs that may not agree with what is kept of them elsewhere, or that may wait for nothing.
SELECT run.num FROM harborage_runs AS run
WHERE run.num > :after AND run.num <= :until AND (
  run.status NOT BETWEEN 0 AND 5
  OR min(run.created_at, run.updated_at, coalesce(run.wake_at, 0), coalesce(run.deadline, 0)) < 0
  OR max(run.created_at, run.updated_at, coalesce(run.wake_at, 0), coalesce(run.deadline, 0)) > :latest
  OR NOT EXISTS (SELECT 1 FROM harborage_sessions AS own WHERE own.num = run.session)
  OR run.position <> (SELECT count(*) FROM harborage_journal AS entry WHERE entry.run = run.num)
  OR run.position <> (SELECT coalesce(max(entry.position), 0) FROM harborage_journal AS entry WHERE entry.run = run.num)
  OR run.unread <> (
    SELECT count(*) FROM harborage_controls AS control WHERE control.run = run.num AND control.consumed IS NULL
  )
  OR (run.root IS NULL AND run.tree < run.children)
  OR run.children < (SELECT count(*) FROM harborage_runs AS child WHERE child.parent = run.run_id)
  OR (run.grp IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM harborage_groups AS one WHERE one.session = run.session AND one.group_id = run.grp
  ))
  OR (run.status >= 3 AND (
    run.owner IS NOT NULL OR run.wake_at IS NOT NULL OR run.awaits IS NOT NULL OR run.woken
    OR EXISTS (SELECT 1 FROM harborage_pauses AS pause WHERE pause.run = run.run_id AND pause.status = 'open')
  ))
  OR (run.status < 3 AND run.owner IS NOT NULL AND run.fence = 0)
  OR (run.status < 3 AND run.position = 0 AND (run.owner IS NOT NULL OR run.woken))
  OR (run.status < 3 AND run.position > 0 AND run.owner IS NULL AND NOT run.woken AND run.blocked IS NULL AND (
    run.unread > 0
    OR (run.wake_at IS NULL AND NOT EXISTS (
      SELECT 1 FROM harborage_pauses AS pause WHERE pause.run = run.run_id AND pause.status = 'open'
    ))
  ))
)
ORDER BY run.num;

-- name: run_texts
-- All of a run's texts as one, which cannot be read where one of them is none.
SELECT
  num, run_id || tenant || user || agent || coalesce(parent, '') || coalesce(root, '') || coalesce(grp, '') || kind
  || reason || coalesce(blocked, '') || description || about || coalesce(awaits, '') || coalesce(owner, '')
  || coalesce(idem, '') || fingerprint
FROM harborage_runs WHERE num > :after AND num <= :until;

-- name: run_numbers
SELECT num FROM harborage_runs WHERE num > :after AND num <= :until ORDER BY num;

-- name: entries
SELECT entry.num, entry.run, entry.position, entry.crc, entry.data, run.num IS NULL
FROM harborage_journal AS entry LEFT JOIN harborage_runs AS run ON run.num = entry.run
WHERE entry.num > :after ORDER BY entry.num LIMIT :size;

-- name: entries_last
SELECT num FROM harborage_journal WHERE num > 0 ORDER BY num DESC LIMIT 1;

-- name: run_name
SELECT CAST(run_id AS BLOB) FROM harborage_runs WHERE num = :number;

-- name: first_entry
SELECT data FROM harborage_journal WHERE run = :number AND position = 1;

-- name: is_named
SELECT 1 FROM harborage_bodies AS body CROSS JOIN harborage_run_bodies AS named ON named.body = body.num
WHERE body.digest = :digest AND named.run = :number;

-- name: bodies
SELECT body.num, CAST(body.digest AS BLOB), body.data, (
  SELECT CAST(run.run_id AS BLOB) FROM harborage_run_bodies AS named
  CROSS JOIN harborage_runs AS run ON run.num = named.run
  WHERE named.body = body.num LIMIT 1
)
FROM harborage_bodies AS body WHERE body.num > :after ORDER BY body.num LIMIT :size;

-- name: bodies_last
SELECT num FROM harborage_bodies WHERE num > 0 ORDER BY num DESC LIMIT 1;

-- name: controls
SELECT
  control.num, control.run, CAST(coalesce(run.run_id, '') AS BLOB), CAST(control.event_id AS BLOB), control.sent_at,
  control.data, control.consumed IS NULL, run.num IS NULL
FROM harborage_controls AS control LEFT JOIN harborage_runs AS run ON run.num = control.run
WHERE control.num > :after ORDER BY control.num LIMIT :size;

-- name: controls_last
SELECT num FROM harborage_controls WHERE num > 0 ORDER BY num DESC LIMIT 1;

-- name: pauses
SELECT
  pause.num, pause.status = 'open' AND pause.run <> '' AND NOT EXISTS (
    SELECT 1 FROM harborage_runs AS run WHERE run.run_id = pause.run
  )
FROM harborage_pauses AS pause WHERE pause.num > :after ORDER BY pause.num LIMIT :size;

-- name: pauses_last
SELECT num FROM harborage_pauses WHERE num > 0 ORDER BY num DESC LIMIT 1;

-- name: groups
-- Whether each may not agree with its members.
SELECT one.num, session.tenant, session.user, session.session, one.group_id,
  one.open_members <> (
    SELECT count(*) FROM harborage_runs AS member
    WHERE member.grp = one.group_id AND member.grp IS NOT NULL AND member.session = one.session AND member.status < 3
  )
  OR one.members < (
    SELECT count(*) FROM harborage_runs AS member
    WHERE member.grp = one.group_id AND member.grp IS NOT NULL AND member.session = one.session
  )
FROM harborage_groups AS one JOIN harborage_sessions AS session ON session.num = one.session
WHERE one.num > :after ORDER BY one.num LIMIT :size;

-- name: groups_last
SELECT num FROM harborage_groups WHERE num > 0 ORDER BY num DESC LIMIT 1;

-- name: sessions
SELECT num FROM harborage_sessions WHERE num > :after ORDER BY num LIMIT :size;

-- name: sessions_last
SELECT num FROM harborage_sessions WHERE num > 0 ORDER BY num DESC LIMIT 1;

-- name: suspect_sessions
-- Sessions whose events may not be those that they count: their places are not one to that number.
SELECT session.num FROM harborage_sessions AS session LEFT JOIN (
  SELECT event.session AS num, count(*) AS events, max(event.place) AS last, sum(event.place) AS total
  FROM harborage_events AS event WHERE event.session > :after AND event.session <= :until GROUP BY event.session
) AS kept ON kept.num = session.num
WHERE session.num > :after AND session.num <= :until AND (
  session.events <> coalesce(kept.events, 0) OR session.events <> coalesce(kept.last, 0)
  OR session.events * (session.events + 1) / 2 <> coalesce(kept.total, 0)
)
ORDER BY session.num;

-- name: events
SELECT
  event.sequence, event.session, event.place, CAST(event.run AS BLOB), CAST(event.type AS BLOB), event.at, event.crc,
  event.data, session.num IS NULL
FROM harborage_events AS event LEFT JOIN harborage_sessions AS session ON session.num = event.session
WHERE event.sequence > :after ORDER BY event.sequence LIMIT :size;

-- name: events_last
SELECT sequence FROM harborage_events WHERE sequence > 0 ORDER BY sequence DESC LIMIT 1;

-- name: tables
-- The large ones last.
SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name IN ('harborage_events', 'harborage_journal'), name;
